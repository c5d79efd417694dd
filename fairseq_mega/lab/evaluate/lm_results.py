"""Result files of language models: names, contents, and the check of an existing file."""

from pathlib import Path
from typing import Any, Dict

import torch

from fairseq_mega.lab.evaluate.lm_scores import Score, Setting, Sizes
from fairseq_mega.lab.runs.results import make_result, read_result


def check_same(file: Path, sources: Dict[str, str]) -> None:
    """Raise a ValueError unless an existing result file was measured on the same files."""
    settings = read_result(file)["settings"]
    for name, digest in sources.items():
        if settings.get(name) != digest:
            changed = "checkpoint" if name == "checkpoint_sha256" else "text"
            raise ValueError(
                f"{file} was measured on another {changed}, or by an older version: give another --label or --output, "
                "or remove it"
            )


def file_of(folder: Path, label: str, subset: str, setting: Setting) -> Path:
    """Return the path of a setting's result file."""
    parts = [f"{name}{value}" for name, value in zip(("k", "t", "c", "w", "x"), setting) if value is not None]
    return folder / ("-".join([label, subset, *parts]) + ".json")


def settings_of_result(
    model: Any, task: Any, subset: str, setting: Setting, sizes: Sizes, score: Score, origin: Dict[str, Any]
) -> Dict[str, Any]:
    """Collect the settings of a result; ``origin`` holds checksums and the training."""
    return {
        **{name: value for name, value in setting._asdict().items() if value is not None},
        "subset": subset,
        "chunk_nums": sizes.chunk_nums,
        "max_tokens": sizes.max_tokens,
        "threads": torch.get_num_threads(),
        "mean_segment": score.mean_segment,
        "longest_segment": score.longest_segment,
        "trained_chunk_or_block": getattr(task, "chunk_size", task.args.tokens_per_sample),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        **origin,
    }


def result_of(benchmark: str, label: str, score: Score, command: str, settings: Dict[str, Any]) -> Dict[str, Any]:
    """Make the result of a score; the seed among the settings becomes the result's, its words a perplexity per word."""
    seed = settings["seed"]
    scores = {
        "perplexity": 2**score.bits,
        "bits_per_token": score.bits,
        "tokens_per_second": score.tokens / score.seconds,
    }
    if settings.get("words"):
        scores["word_perplexity"] = 2 ** (score.bits * score.tokens / settings["words"])
    rest = {name: value for name, value in settings.items() if name != "seed"}
    return make_result(benchmark, label, scores, score.tokens, command, seed, rest)
