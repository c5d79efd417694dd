"""Convert options between the published code (facebookresearch/mega) and ours; tensors supply missing options."""

from argparse import Namespace
from dataclasses import fields
from typing import Any, Dict

from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from torch import Tensor

from fairseq_mega.compat.files.settings import setting_of
from fairseq_mega.models.mega_classifier import MegaClassifierConfig
from fairseq_mega.models.options.configurations import flag
from fairseq_mega.models.options.table import DEPTH, EMA, FFN, SHARED, VALUES, WIDTH

# Options of published classifiers that have another name here: the aliases of our flags.
CLASSIFIER_OPTIONS = {
    option.metadata["argparse_alias"].lstrip("-").replace("-", "_"): option.name
    for option in fields(MegaClassifierConfig)  # type: ignore[arg-type]  # which its decorator makes a dataclass
    if "argparse_alias" in option.metadata
}
WIDTHS = {  # option -> end of the name of a layer's tensor, and the axis of that length
    WIDTH.name: ("attention.value_proj.weight", 1),
    VALUES.name: ("attention.value_proj.weight", 0),
    SHARED.name: ("attention.kappa", 1),
    EMA.name: ("attention.ema.eta", 1),
    FFN.name: ("feed_forward.fc1.weight", 0),
}
# Architectures that the published code registers; the first of each kind has only the kind's defaults.
TRANSLATORS = ("mega", "mega_wmt_en_de", "mega_wmt_en_de_big")
LANGUAGE_MODELS = (
    *("mega_lm", "mega_lm_big", "mega_lm_wiki103", "mega_lm_adaptive_base", "mega_lm_adaptive_big"),
    *("mega_lm_enwik8_base", "mega_lm_enwik8_large"),
)
RECORDINGS = ("sc_raw", "mega_sc_raw", "mega_sc_raw_base", "mega_sc_raw_big")
CLASSIFIERS = (
    *("lra", "mega_lra_listop", "mega_lra_imdb", "mega_lra_aan"),
    *("mega_lra_cifar10", "mega_lra_pf32", "mega_lra_pf128"),
)
MASKED = "masked language model"
IMAGES = "image classifier"
# Our tensors that only image classifiers have.
OF_IMAGES = {
    "encoder.embedding.patches.weight",
    "encoder.embedding.patches.bias",
    "head.hidden.weight",
    "head.hidden.bias",
    "head.output.bias",
}
OURS_ALONE = {"reset_at_document_ends": False, "residual_hops": 2}  # option -> its value in the published codes
LANGUAGE_MODELING = ("language_modeling", "mega_language_modeling")  # the task in the published code and here
MODEL_AND_TASK = {"task": "task", "model": "arch"}  # groups of a configuration -> option of the name in them
ALL_GROUPS = {"criterion": "criterion", **MODEL_AND_TASK}


def kind_of(model: Dict[str, Tensor]) -> str:
    """Return "classifier", MASKED, IMAGES, "translator", "language model" or "" by the names of our tensors."""
    encoder, decoder = (any(name.startswith(f"{side}.layers.") for name in model) for side in ("encoder", "decoder"))
    if not OF_IMAGES.isdisjoint(model):
        return IMAGES
    if any(name.startswith("head.") for name in model):
        return "classifier"
    if any(name.startswith("prediction.") for name in model):
        return MASKED
    return {(True, True): "translator", (False, True): "language model"}.get((encoder, decoder), "")


def flat_options(checkpoint: Dict[str, Any], groups: Dict[str, str] = MODEL_AND_TASK) -> Dict[str, Any]:
    """Return the options in groups of any fairseq's checkpoint; the later groups override the earlier ones."""
    cfg = checkpoint.get("cfg")
    if not cfg:
        return dict(vars(checkpoint.get("args") or Namespace()))
    values: Dict[str, Any] = {}
    for part, name in groups.items():
        given = cfg.get(part) or {}
        given = vars(given) if isinstance(given, Namespace) else {key: given[key] for key in given}
        values.update({key: value for key, value in given.items() if key != "_name"}, **{name: given.get("_name")})
    return values


def scoring_options(checkpoint: Dict[str, Any]) -> Dict[str, Any]:
    """Return the options of a checkpoint's criterion and task, without the data folder."""
    given = flat_options(checkpoint, ALL_GROUPS)
    known = REGISTRIES["criterion"]["dataclass_registry"].get(given.get("criterion"))
    options = [kind for kind in (known, TASK_DATACLASS_REGISTRY.get(given.get("task"))) if kind is not None]
    names = {"criterion", "task", *(option.name for kind in options for option in fields(kind))} - {"_name", "data"}
    return {name: given[name] for name in sorted(names) if given.get(name) is not None}


def convert_options(published: Dict[str, Any], model: Dict[str, Tensor]) -> Dict[str, Any]:
    """Convert a published model's options to ours; ``model`` has its tensors under our names."""
    values, kind = dict(published), kind_of(model)
    if kind == "classifier":
        for theirs, ours in CLASSIFIER_OPTIONS.items():
            if theirs in values:
                values[ours] = values.pop(theirs)
        text = model["encoder.embedding.tokens.weight"].dim() == 2
        if values.get("arch") in (None, CLASSIFIERS[0]):
            values["arch"] = "mega_lra"
        values.setdefault("task", "lra-text" if text else "lra-image")
        values["criterion"] = values.get("criterion") or "lra_cross_entropy"
    elif kind == "translator":
        values.setdefault("published_source_padding", True)  # a model of ours may have been trained without
        values.setdefault("arch", "mega")
        values.setdefault("task", "translation")
    else:
        values["task"] = LANGUAGE_MODELING[1]
        values.setdefault("arch", "mega_lm")
        if (values.get("decoder_chunk_size") or -1) > 0:  # the length of blocks depends on it, here and there
            tokens = values.pop("tokens_per_sample", None)
            values["max_target_positions"] = values.get("max_target_positions") or tokens
    values["truncation_length"] = values.get("truncation_length") or 0  # published None: no truncation
    usual = "adaptive_loss" if values.get("adaptive_softmax_cutoff") else "cross_entropy"
    values["criterion"] = values.get("criterion") or usual
    _fill(values, model, kind)
    return values


def refuse_ours_alone(options: Dict[str, Any]) -> None:
    """Raise a ValueError for a value of the options OURS_ALONE with which the published code would differ."""
    for name, value in OURS_ALONE.items():
        if options.get(name, value) != value:
            raise ValueError(f"{flag(name)} {options[name]}: the published code has only {value}; nothing was written")


def publish_options(ours: Dict[str, Any], model: Dict[str, Tensor]) -> Dict[str, Any]:
    """Convert our options to published ones: the inverse of :func:`convert_options`.

    The published code builds a checkpoint's model from these options and the defaults of its kind. The defaults of an
    architecture apply to its command line only.
    """
    kind, values = kind_of(model), dict(ours)
    if kind == "translator":
        values["published_source_padding"] = bool(ours.get("published_source_padding"))  # read here alone
    _fill(values, model, kind)
    known = {"translator": TRANSLATORS, "classifier": CLASSIFIERS}.get(kind, LANGUAGE_MODELS)
    if kind == "classifier":
        for theirs, option in CLASSIFIER_OPTIONS.items():
            if option in values:
                values[theirs] = values.pop(option)
        if values.get("act_dropout") is None:  # one option for both dropouts in the published code
            values["act_dropout"] = values.get("hidden_dropout", 0.0)
        if values.get("input_type") is None:
            text = model["encoder.embedding.tokens.weight"].dim() == 2
            values["input_type"] = "text" if text else "image"
        inner = model.get("head.hidden.0.weight")
        if inner is None:  # no hidden layer
            values["classifier_out_dim"] = model["head.output.weight"].size(1)
        else:
            values.setdefault("classifier_in_dim", inner.size(1))
        values = {"layer_type": "mega", "use_p": False, **values}
        known = RECORDINGS if values.get("task") == "speech_commands" else known
    elif kind == "language model":
        if values.get("decoder_input_dim") is None:
            values["decoder_input_dim"] = values["decoder_embed_dim"]
        if values.get("tokens_per_sample") is None and values.get("max_target_positions") is not None:
            values["tokens_per_sample"] = values["max_target_positions"]
    if values.get("arch") not in known:  # a name of this package
        values["arch"] = known[0]
    if (values.get("truncation_length") or 0) < 1:
        values["truncation_length"] = None  # 0 would be a moving average over no steps
    if values.get("task") == LANGUAGE_MODELING[1]:
        values["task"] = LANGUAGE_MODELING[0]
    return values


def _fill(values: Dict[str, Any], model: Dict[str, Tensor], kind: str) -> None:
    """Add missing options that follow from the tensors."""
    chunk = setting_of(values, "decoder_chunk_size")  # the default in both codes
    if kind == "translator" and chunk is not None:
        values["decoder_chunk_size"] = chunk
    chunked = any((values.get(f"{side}_chunk_size") or -1) > 0 for side in ("encoder", "decoder"))
    for option, value in shape_options(model, kind).items():
        of_positions = option.startswith("max_")  # the bias of a chunk does not depend on these options
        if values.get(option) is None and not (chunked and of_positions):
            values[option] = value


def widths(model: Dict[str, Tensor], side: str) -> Dict[str, int]:
    """Return depth and widths of a side from our tensors; the first layer with the tensor decides a width."""
    layers = sorted(name for name in model if name.startswith(f"{side}.layers."))
    found = {DEPTH.name.format(side=side): len({name.split(".")[2] for name in layers})}
    for option, (suffix, axis) in WIDTHS.items():
        name = next((name for name in layers if name.endswith(f".{suffix}")), None)
        if name is not None and model[name].dim() == 2:
            found[option.format(side=side)] = model[name].size(axis)
    return found


def shape_options(model: Dict[str, Tensor], kind: str) -> Dict[str, Any]:
    """Return the options that follow from the shapes of our tensors."""
    found: Dict[str, Any] = {}
    for side in ("encoder", "decoder"):
        layer = f"{side}.layers.0."
        if not any(name.startswith(layer) for name in model):
            continue
        found.update({FFN.name.format(side=side): 0, **widths(model, side)})
        found["normalization_type"] = norm_of(model, f"{layer}attention.norm.")
        found["rel_pos_bias"] = "rotary" if f"{layer}attention.relative_bias.alpha" in model else "simple"
        found["normalize_before"] = any(name.startswith(f"{side}.final_norm.") for name in model)
        found["normalize_embedding"] = any(name.startswith(f"{side}.embedding.norm.") for name in model)
        bias = model.get(f"{layer}attention.relative_bias.weight")
        if bias is not None:
            of_side = "max_source_positions" if side == "encoder" else "max_target_positions"
            found["max_positions" if kind == "classifier" else of_side] = (bias.numel() + 1) // 2
    if kind == "classifier":
        found["sentence_class_num"] = model["head.output.weight"].size(0)
        found["classifier_layers"] = sum(name.startswith("head.hidden.") and name.endswith(".bias") for name in model)
        if "head.hidden.0.bias" in model:
            found["classifier_out_dim"] = model["head.hidden.0.bias"].numel()
    return found


def norm_of(model: Dict[str, Tensor], prefix: str) -> str:
    """Return the type of a norm by the names of its parameters."""
    names = {name[len(prefix) :] for name in model if name.startswith(prefix)}
    if "running_mean" in names:
        return "batchnorm"
    if "scalar" in names:
        return "scalenorm"
    return "layernorm" if "bias" in names else "rmsnorm"
