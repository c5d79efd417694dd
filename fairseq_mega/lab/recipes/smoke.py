"""Recipes in a tiny form: the same options with toy sizes, so that every stage runs in seconds on a CPU."""

from typing import Any, Container, Dict

from .recipe import FOLDER, PRESETS, Config, preset

TOYS = ("miniature", "tiny")  # ends of the presets' names; mega_image_tiny is the published code's, which is no toy
FAIRSEQS: Dict[str, Dict[str, Any]] = {  # models of fairseq, which have no presets
    "transformer": {
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_embed_dim": 32,
        "decoder_embed_dim": 32,
        "encoder_ffn_embed_dim": 48,
        "decoder_ffn_embed_dim": 48,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
    },
    "transformer_lm": {
        "decoder_layers": 1,
        "decoder_embed_dim": 32,
        "decoder_input_dim": 32,
        "decoder_output_dim": 32,
        "decoder_ffn_embed_dim": 48,
        "decoder_attention_heads": 2,
    },
}
OF_DATA: Dict[str, Any] = {  # options that suit the invented data
    "decoder_chunk_size": 16,
    "adaptive_input_cutoff": "10,20",
    "adaptive_softmax_cutoff": "10,20",
    "image_class_num": 4,
}
UPDATES = {"classifier": 6, "images": 6, "language-model": 12, "translation": 25, "speed": 1}
LONGEST = 16384  # pixels: full attention over so many is slow


def toy(model: str) -> Dict[str, Any]:
    """Return the options of the smallest preset of a model that are whole numbers, such as its widths."""
    if model in FAIRSEQS:
        return FAIRSEQS[model]
    name = next(f"{model}_{end}" for end in TOYS if (FOLDER / PRESETS / f"{model}_{end}.yaml").is_file())
    return {option: value for option, value in preset(name).items() if type(value) is int}


def shrink(config: Config, kind: str, kept: Container[str] = ()) -> None:
    """Make a configuration tiny, in place; no option is added.

    Args:
        kind: of its evaluation.
        kept: "group.option" of the options that stay as they are.
    """
    model = config["model"]
    widths = {option: min(value, model.get(option) or 0) for option, value in toy(model["_name"]).items()}
    chunk = min(OF_DATA["decoder_chunk_size"], model.get("decoder_chunk_size") or 0)  # full attention, -1, stays
    changes: Dict[str, Dict[str, Any]] = {
        "model": {**widths, **OF_DATA, "decoder_chunk_size": chunk},
        "common": {"log_interval": 1},
        "dataset": {"num_workers": 0},
    }
    if kind in ("classifier", "images"):
        longest = model.get("max_positions") == LONGEST
        changes["dataset"].update(batch_size=1 if longest else 8, validate_interval=1)
        changes["model"].update({"encoder_layers": 1} if longest else {})
        changes["optimization"] = {"update_freq": [1]}
        changes["distributed_training"] = {"distributed_world_size": 1}
    elif config["lr_scheduler"]["_name"] == "timed_decay":  # saved and validated by updates alone
        changes["dataset"].update(max_tokens=1000, validate_interval_updates=10)
        changes["lr_scheduler"] = {"warmup_updates": 5}
        changes["checkpoint"] = {"save_interval_updates": 10}
    elif kind in ("language-model", "speed"):
        changes["dataset"].update(max_tokens=2048)
        changes["task"] = {"max_target_positions": 2048, "tokens_per_sample": 64}
        changes["lr_scheduler"] = {"warmup_updates": 4}
        changes["checkpoint"] = {"save_interval_updates": 5}
        changes["optimization"] = {"update_freq": [2]}
        changes["distributed_training"] = {"distributed_world_size": 1}
    else:
        changes["dataset"].update(max_tokens=1024, batch_size=16, validate_interval=1)
        changes["lr_scheduler"] = {"warmup_updates": 5}
        changes["checkpoint"] = {"keep_last_epochs": 2}
        config["task"]["eval_bleu_args"] = '{"max_len_a": 0, "max_len_b": 20}'
    for group, options in changes.items():
        for key, value in options.items():
            if config[group].get(key) is not None and f"{group}.{key}" not in kept:
                config[group][key] = value


def shrink_evaluation(evaluate: Dict[str, Any], kept: Container[str] = ()) -> Dict[str, Any]:
    """The settings of an evaluation for the tiny form.

    Args:
        kept: "evaluate.option" of the options that stay as they are.
    """
    found = dict(evaluate)
    if len(found.get("contexts", [])) > 1 and "segments" in found["contexts"][0]:  # the panels of a figure
        found["contexts"] = [{"segments": [20, 4, 1], "chunk_size": [16]}, {"segments": [2], "chunk_size": [8, 16, 32]}]
    elif "contexts" in found:
        found["contexts"] = list(map(shorter, found["contexts"]))
    if "lengths" in found:
        found.update(lengths=[64], symbols=50, repeat=1)
    if "average" in found:
        found["average"] = 2
    return {key: evaluate[key] if f"evaluate.{key}" in kept else value for key, value in found.items()}


def shorter(context: Dict[str, Any]) -> Dict[str, Any]:
    """The lengths of a context for the tiny form."""
    tiny = {"chunk_size": [32], "exact_contexts": [32, 64, 128, 256], "context_window": [16], "attention_window": [32]}
    return {key: tiny.get(key, value) for key, value in context.items()}
