"""Option --decode-weights of the commands that generate and score.

fairseq's configurations have no field for this option. It is passed to the models as an entry of --model-overrides, a
text that fairseq does not change.
"""

from typing import Any, Iterator, Optional, Sequence

from fairseq_mega.compat import hooks
from fairseq_mega.compat.checks import command_of
from fairseq_mega.compat.files.expressions import literal

NAME = "decode_weights"
HELP = "store the matrices of a MEGA model in bfloat16 or int8 (a scale for each row): faster single steps on a CPU"


def add_decode_weights(kinds: Sequence[str]) -> None:
    """Add the option to the commands that prepare models for inference; other models than ours reject it.

    Args:
        kinds: values of the option.
    """

    def parse_decode_weights(call: hooks.Call) -> Iterator[None]:
        parser = call.arguments["parser"]
        command = command_of({action.dest: None for action in parser._actions})
        if command not in (None, "validate") and "--decode-weights" not in parser._option_string_actions:
            parser.add_argument("--decode-weights", choices=kinds, help=HELP)
        yield
        namespace = hooks.parsed(call)
        kind = getattr(namespace, NAME, None)
        if kind is not None:
            overrides = literal(namespace.model_overrides or "{}")
            namespace.model_overrides = repr({**overrides, NAME: kind})

    hooks.at("parse", parse_decode_weights)
    hooks.at("infer", refuse_other_models)


def requested_format(cfg: Any) -> Optional[str]:
    """Return the value of --decode-weights in the configuration of a command, or None."""
    text = getattr(getattr(cfg, "common_eval", None), "model_overrides", None)
    overrides = literal(text or "{}")  # eval-lm accepts any expression there
    return overrides.get(NAME) if isinstance(overrides, dict) else None


def refuse_other_models(call: hooks.Call) -> Iterator[None]:
    """Raise a ValueError for a model that does not pack its weights (event "infer")."""
    kind, model = requested_format(call.arguments["cfg"]), call.arguments["self"]
    if kind is not None and not getattr(model, "packs_weights", False):
        name = type(model).__name__
        raise ValueError(f"--decode-weights {kind}: {name} is not a MEGA model that generates; omit the option")
    yield
