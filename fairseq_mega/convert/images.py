"""Convert image classifiers of XuezheMax/mega-image to this package's layout, and back.

The model's options follow from the shapes of the tensors, except for the dropouts, which are read from the training's
options. All options of the training are stored under TRAINING for the way back; the optimiser's state is omitted.
"""

import argparse
import math
from typing import Any, Dict, Optional

from torch import Tensor

from fairseq_mega.compat.files.safetensors_files import no_history

from .options import flat_options, norm_of, widths
from .tensors import convert_state_dict, publish_state_dict

PATCHES = "patch_embed.pemb.proj.weight"
OUR_PATCHES, POSITIONS = "encoder.embedding.patches.weight", "encoder.embedding.positions"
TRAINING = "mega_image"  # in extra_state
KEPT = ("epoch", "steps")
ORIGIN = {"arch": "mega_image", "task": "image-classification", "criterion": "lra_cross_entropy"}
DROPOUTS = {"drop": "dropout", "drop_path": "drop_path"}  # published option -> ours
NORMS = ("layernorm", "batchnorm", "syncbatchnorm")
PUBLISHED_MODELS = {(768, 12): "mega_base_patch16_224", (192, 12): "mega_tiny_patch16_224"}  # of width and depth


def is_images(model: Dict[str, Any]) -> bool:
    """Return whether tensors by name are those of a published image classifier."""
    return PATCHES in model or any(name.startswith("blocks.") and ".mega_layer." in name for name in model)


def convert_images(published: Dict[str, Any], where: str) -> Dict[str, Any]:
    """Our checkpoint from a published one.

    Args:
        published: contents of the file: ``model``, and optionally ``args`` of the training.
        where: path of the file, for messages.

    Raises:
        ValueError: if this package has no model for the checkpoint.
    """
    model = convert_state_dict(published["model"], shared_output=False)
    given = published.get("args")
    training = dict(vars(given)) if hasattr(given, "__dict__") else {}
    values: Dict[str, Any] = {**ORIGIN, **image_options(model, where)}
    values.update({ours: training[theirs] for theirs, ours in DROPOUTS.items() if training.get(theirs) is not None})
    kept = {"args": training, **{key: published[key] for key in KEPT if key in published}}
    options = argparse.Namespace(**values)
    return {"args": options, "model": model, "extra_state": {TRAINING: kept}, "optimizer_history": no_history()}


def image_options(model: Dict[str, Tensor], where: str) -> Dict[str, Any]:
    """Return the options that follow from the shapes of our tensors; options of missing tensors keep their defaults.

    Raises:
        ValueError: if the patches are not square and cut by a convolution, or do not form a square.
    """
    found: Dict[str, Any] = dict(widths(model, "encoder"))
    found["normalization_type"] = norm_of(model, "encoder.layers.0.attention.norm.")
    if "head.output.weight" in model:
        found["image_class_num"] = model["head.output.weight"].size(0)
    patches, places = model.get(OUR_PATCHES), _places(model)
    if patches is not None:
        if patches.dim() != 4 or patches.size(2) != patches.size(3):
            raise ValueError(
                f"--input {where}: {PATCHES} is {tuple(patches.shape)}: give a model with square patches, cut by a "
                f"convolution (--patch-impl conv of the published code)"
            )
        found["patch_size"] = patches.size(2)
    if places is not None:
        if math.isqrt(places) ** 2 != places:
            raise ValueError(f"--input {where}: {places} patches do not form a square: give a model for square images")
        found["image_size"] = math.isqrt(places) * found.get("patch_size", 16)
    return found


def _places(model: Dict[str, Tensor]) -> Optional[int]:
    """Return the number of patches of an image, from the positions or a relative bias; None without either."""
    if POSITIONS in model:
        return model[POSITIONS].size(0)
    biases = [tensor for name, tensor in model.items() if name.endswith(".relative_bias.weight")]
    return (biases[0].numel() + 1) // 2 if biases else None


def publish_images(checkpoint: Dict[str, Any], where: str) -> Dict[str, Any]:
    """Convert back: the inverse of :func:`convert_images`.

    The published code resumes training from the result with a new optimiser.

    Raises:
        ValueError: if the published code does not have the model's layers.
    """
    options = {**image_options(checkpoint["model"], where), **flat_options(checkpoint)}
    if options.get("encoder_ffn_embed_dim") == 0 or options["normalization_type"] not in NORMS:
        raise ValueError(
            f"--input {where}: --to official: the published layers have an FFN, and norms of {', '.join(NORMS)}"
        )
    training = {
        "model": PUBLISHED_MODELS.get((options["encoder_embed_dim"], options["encoder_layers"])),
        "input_size": options["image_size"],
        "nb_classes": options["image_class_num"],
        "norm_type": options["normalization_type"],
        "patch_impl": "conv",
        "no_pos_emb": False,
        "representation_size": None,
        **{theirs: options[ours] for theirs, ours in DROPOUTS.items() if ours in options},
    }
    kept = (checkpoint.get("extra_state") or {}).get(TRAINING) or {}
    training.update(kept.get("args", {}))
    model = publish_state_dict(checkpoint["model"], shared_output=False)
    return {"model": model, **{key: kept[key] for key in KEPT if key in kept}, "args": argparse.Namespace(**training)}
