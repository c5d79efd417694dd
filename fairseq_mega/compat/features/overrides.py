"""Options that override settings of a checkpoint (from_pretrained, --model-overrides): fairseq ignores unknown ones."""

import argparse
from typing import Any, Iterator, Set

from omegaconf import OmegaConf

from fairseq_mega.compat import hooks
from fairseq_mega.compat.features import decode_weights

BESIDES = ("generation_args", "is_vocoder", "load_checkpoint_heads", decode_weights.NAME)  # read in other places


def refuse_unknown_overrides(call: hooks.Call) -> Iterator[None]:
    """Refuse an option that is not in a checkpoint's settings (event "read")."""
    yield
    settings, path, given = call.result.get("cfg"), call.arguments["path"], call.arguments["arg_overrides"] or {}
    if settings is None:
        return
    unknown = sorted(set(given) - {*names_of(settings), *_of_text_tools(), *BESIDES}) if given else []
    if unknown:
        raise ValueError(f"{path} has no option {', '.join(unknown)}: omit it, or correct its name")
    trained = getattr(settings.get("criterion"), "_name", None)
    if trained is not None and given.get("criterion", trained) != trained:
        raise ValueError(f"--criterion {given['criterion']}: {path} was trained with {trained}: omit the option")


def names_of(settings: Any) -> Set[str]:
    """Return the names in nested settings, of groups and of their options."""
    if OmegaConf.is_config(settings):
        settings = OmegaConf.to_container(settings)
    elif isinstance(settings, argparse.Namespace):  # of a task with options in argparse
        settings = vars(settings)
    if not isinstance(settings, dict):
        return set()
    return set(settings).union(*map(names_of, settings.values()))


def _of_text_tools() -> Set[str]:
    """Return the options of every --tokenizer and every --bpe; the settings contain only those in use."""
    from fairseq import registry

    return {
        name
        for group in ("tokenizer", "bpe")
        for kind in registry.REGISTRIES.get(group, {}).get("dataclass_registry", {}).values()
        for name in kind.__dataclass_fields__
    }
