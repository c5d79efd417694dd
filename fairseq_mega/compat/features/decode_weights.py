"""Option --decode-weights of the commands that generate and score.

fairseq's configurations have no field for this option. It is passed to the models as an entry of --model-overrides, a
text that fairseq does not change.
"""

import typing

from fairseq_mega.compat import hooks
from fairseq_mega.compat.files.expressions import literal
from fairseq_mega.compat.patching import wrap

NAME = "decode_weights"
HELP = "store the matrices of a MEGA model in bfloat16 or int8 (a scale for each row): faster single steps on a CPU"


def add_decode_weights(kinds: typing.Sequence[str]) -> None:
    """Add the option to the commands that have --model-overrides; other models than those of this package reject it.

    Args:
        kinds: values of the option.
    """
    from fairseq import options
    from fairseq.models import BaseFairseqModel

    def add_decode_weights_option(original: typing.Callable, parser: typing.Any) -> typing.Any:
        group = original(parser)
        parser.add_argument("--decode-weights", choices=kinds, help=HELP)
        return group

    wrap(options, "add_generation_args", add_decode_weights_option)
    wrap(options, "add_eval_lm_args", add_decode_weights_option)
    hooks.at("parse", _parse_into_overrides)
    wrap(BaseFairseqModel, "prepare_for_inference_", _refuse_other_models)


def asked_for(cfg: typing.Any) -> typing.Optional[str]:
    """Return the value of --decode-weights in the configuration of a command, or None."""
    text = getattr(getattr(cfg, "common_eval", None), "model_overrides", None)
    overrides = literal(text or "{}")  # eval-lm accepts any expression there
    return overrides.get(NAME) if isinstance(overrides, dict) else None


def _parse_into_overrides(call: hooks.Call) -> typing.Iterator[None]:
    yield
    namespace = hooks.parsed(call)
    kind = getattr(namespace, NAME, None)
    if kind is not None:
        overrides = literal(namespace.model_overrides or "{}")
        namespace.model_overrides = repr({**overrides, NAME: kind})


def _refuse_other_models(original: typing.Callable, model: typing.Any, cfg: typing.Any) -> typing.Any:
    kind = asked_for(cfg)
    if kind is not None and not getattr(model, "packs_weights", False):
        name = type(model).__name__
        raise ValueError(f"--decode-weights {kind}: {name} is not a MEGA model that generates; leave the option out")
    return original(model, cfg)
