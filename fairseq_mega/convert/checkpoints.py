"""Convert whole checkpoints of the published code (facebookresearch/mega) to this package's layout, and back."""

import argparse
from typing import Any, Dict, List

from fairseq_mega.compat.files.safetensors_files import no_history

from .options import ALL_GROUPS, convert_options, flat_options, kind_of, publish_options
from .tensors import convert_state_dict, publish_state_dict

OMITTED = ("model", "cfg", "args", "last_optimizer_state")


def is_published(checkpoint: Any) -> bool:
    """Return whether the contents of a file are a checkpoint of a MEGA of the published code."""
    args = checkpoint.get("args") if isinstance(checkpoint, dict) else None
    names: List[str] = list(checkpoint["model"]) if args is not None and "model" in checkpoint else []
    return hasattr(args, "__dict__") and any(".mega_layer." in name for name in names)


def is_ours(checkpoint: Any) -> bool:
    """Return whether the contents of a file are a checkpoint of a MEGA of this package."""
    model = checkpoint.get("model") if isinstance(checkpoint, dict) else None
    return isinstance(model, dict) and any(name.endswith(".attention.ema.eta") for name in model)


def convert_checkpoint(checkpoint: Any, where: str) -> Dict[str, Any]:
    """Convert a whole published checkpoint; the optimiser's state is omitted.

    Args:
        checkpoint: contents of the file.
        where: path of the file, for messages.

    Raises:
        ValueError: if the contents are not a checkpoint of a MEGA of the published code.
    """
    if not is_published(checkpoint):
        raise ValueError(f"--input {where}: this is not a checkpoint of the published code (facebookresearch/mega)")
    published = flat_options(checkpoint)
    classifier = any(name.startswith("encoder.encoder.layers.") for name in checkpoint["model"])
    if not classifier and not any(name.startswith("decoder.layers.") for name in checkpoint["model"]):
        raise ValueError(
            f"--input {where}: checkpoints of --arch {published.get('arch', '?')} cannot be converted: give an "
            f"encoder-decoder (--arch mega...), a language model (--arch mega_lm...) or a classifier "
            f"(--arch mega_lra..., mega_sc_raw...)"
        )
    model = convert_state_dict(checkpoint["model"], shares_output(published) and not classifier)
    args = argparse.Namespace(**convert_options(published, model))
    kept = {key: value for key, value in checkpoint.items() if key not in OMITTED}
    history = checkpoint.get("optimizer_history") or no_history()
    return {"extra_state": {}, **kept, "optimizer_history": history, "args": args, "model": model}


def publish_checkpoint(checkpoint: Any, where: str) -> Dict[str, Any]:
    """Convert a checkpoint of this package to the published layout: the inverse of :func:`convert_checkpoint`.

    The optimiser's state is omitted: the published fairseq starts with a new state (``--reset-optimizer``).

    Raises:
        ValueError: if the checkpoint is not of a model that the published code has.
    """
    kind = kind_of(checkpoint["model"]) if is_ours(checkpoint) else ""
    if not kind:
        raise ValueError(
            f"--input {where}: --to official requires a checkpoint of this package's MEGA: give an encoder-decoder, a "
            f"language model or a classifier"
        )
    ours = flat_options(checkpoint, ALL_GROUPS)
    model = publish_state_dict(checkpoint["model"], kind != "classifier" and shares_output(ours))
    return {
        "extra_state": {},
        "optimizer_history": [],
        **{key: value for key, value in checkpoint.items() if key not in OMITTED},
        "args": argparse.Namespace(**publish_options(ours, checkpoint["model"])),
        "model": model,
        "last_optimizer_state": None,
    }


def shares_output(options: Dict[str, Any]) -> bool:
    """Return whether the decoder's output layer shares its embedding table."""
    adaptive = options.get("adaptive_softmax_cutoff") is not None
    names = ("share_all_embeddings", "share_decoder_input_output_embed")
    return not adaptive and any(bool(options.get(name)) for name in names)
