"""Presets of the models' options: each file of ``presets/model`` is an architecture."""

import re
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any, Dict, List

import yaml
from fairseq.models import register_model_architecture

FOLDER = Path(__file__).resolve().parents[1] / "presets" / "model"

_TIED = ("tie_adaptive_weights", "tie_adaptive_proj")
_EXCLUDED = {  # given option -> options of a preset that contradict it
    "adaptive_input": ("share_decoder_input_output_embed",),
    "adaptive_softmax_cutoff": ("share_decoder_input_output_embed",),
    "share_decoder_input_output_embed": ("adaptive_input", "adaptive_softmax_cutoff", *_TIED),
    "decoder_embed_path": ("adaptive_input", *_TIED),
}


def preset_names(model: str) -> List[str]:
    """Return the names of the presets of ``model``, such as ``mega_lm``, in alphabetical order."""
    return [name for name, text in _texts().items() if _model(name, text) == model]


def preset(name: str) -> Dict[str, Any]:
    """Return the options of a preset, such as ``mega_lm_tiny``; other options keep the model's defaults.

    Raises:
        ValueError: for an unknown name.
    """
    texts = _texts()
    if name not in texts:
        raise ValueError(f"preset {name} is unknown: give one of {', '.join(texts)}")
    values = yaml.safe_load(texts[name])
    del values["_name"]
    return values


def register_presets() -> None:
    """Register every preset as an architecture (``--arch``) of its model, which must be registered."""
    for name, text in _texts().items():
        register_model_architecture(_model(name, text), name)(partial(_fill, name))


def _fill(name: str, args: Namespace) -> None:
    """Set the options of a preset that the command line neither sets nor contradicts, see :mod:`.tables`."""
    values = preset(name)
    excluded = {other for option, others in _EXCLUDED.items() if getattr(args, option, None) for other in others}
    width = getattr(args, "decoder_embed_dim", values.get("decoder_embed_dim"))
    if getattr(args, "decoder_input_dim", None) not in (None, width):
        excluded.add("share_decoder_input_output_embed")
    for option, value in values.items():
        if option not in excluded:
            setattr(args, option, getattr(args, option, value))


def _texts() -> Dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.yaml"))}


def _model(name: str, text: str) -> str:
    """Return the model of a preset without the YAML parser, which would delay every start by up to 30 ms."""
    found = re.findall(r"^_name: (\w+)$", text, re.MULTILINE)
    if len(found) != 1:
        raise ValueError(f"{FOLDER / name}.yaml has {len(found)} lines '_name: MODEL': write one")
    return found[0]
