"""Tables of the language models of scripts/compare_language_models.sh."""

from pathlib import Path
from typing import Dict, List, Optional, Sequence, Set, Tuple

from fairseq_mega.lab.report.language_models import BENCHMARK
from fairseq_mega.lab.runs.results import Result, read_results
from fairseq_mega.lab.runs.text_tables import Table, table_of

from .numbers import bold_best

MODELS = {
    "transformer": "Transformer",
    "llama": "Llama-style",
    "mega": "MEGA",
    "megalodon": "MEGALODON",
    "megalodon_one_hop": "MEGALODON, one hop",
}
METRICS = {"perplexity": ("perplexity", 2), "bits_per_token": ("bits per token", 4)}
TEXTS = {"wikitext2": "WikiText-2", "gcide_bytes": "bytes of a dictionary"}


def model_of(result: Result) -> str:
    """Return the model of a result, a key of MODELS."""
    return str(result["settings"].get("model", result["label"]))


def context(result: Result) -> Tuple[int, str]:
    """Return the context of a token, as a number for sorting and in words."""
    settings = result["settings"]
    block, chunk = settings["trained_chunk_or_block"], settings["trained_chunk_or_block"]
    if settings.get("segments") == 1:
        return 10**12, "the whole text"
    if settings.get("context") is not None:
        chunks, mean = settings["context"] // chunk, settings["mean_segment"]
        plural = "" if chunks == 1 else "s"
        return settings["context"], f"segments of whole lines, up to {chunks} chunk{plural} ({mean:,.0f} on average)"
    window = settings.get("context_window") or 0
    return window, f"at least {window} of {block}" if window else f"blocks of {block}"


def rate_of(folder: Path) -> str:
    """Return the peak learning rate of a folder of results."""
    return folder.name.partition("lr")[2]


def comparison(folder: Path, words: Sequence[str]) -> Table:
    """Table with a row for each model and context, and a column for each learning rate; the better rate is bold."""
    name, metric = words
    digits = METRICS[metric][1]
    rates = sorted((folder / name).glob("lr*"), key=lambda rate: float(rate_of(rate)))
    cells: Dict[Tuple[int, int, str], Dict[str, Result]] = {}
    for rate in rates:
        for result in read_results(rate, BENCHMARK):
            if result["settings"].get("exact_context") is None:
                model = list(MODELS).index(model_of(result))
                cells.setdefault((model, *context(result)), {})[rate.name] = result
    rows = []
    for (model, _, seen), found in sorted(cells.items()):
        values: List[Optional[float]] = [
            found[rate.name]["scores"][metric] if rate.name in found else None for rate in rates
        ]
        texts = ["" if value is None else f"{value:.{digits}f}" for value in values]
        rows.append(
            {
                "model": list(MODELS.values())[model],
                "parameters": f"{next(iter(found.values()))['settings']['parameters']:,}",
                "context": seen,
                **dict(zip((f"rate {rate_of(rate)}" for rate in rates), bold_best(texts, values, min))),
            }
        )
    return table_of(rows)


def remembered(folder: Path, words: Sequence[str]) -> Table:
    """Table of the score over the tokens remembered, with a row for each model of each FOLDER METRIC."""
    every: Set[int] = set()
    found: List[Tuple[str, Dict[Optional[int], str]]] = []
    for name, metric in zip(words[::2], words[1::2]):
        title, digits = METRICS[metric]
        models: Dict[str, Dict[Optional[int], str]] = {}
        for result in read_results(folder / name, BENCHMARK):
            limit = result["settings"].get("exact_context")
            if limit is not None or result["settings"].get("segments") == 1:
                models.setdefault(model_of(result), {})[limit] = f"{result['scores'][metric]:.{digits}f}"
                every.update(() if limit is None else (limit,))
        text = TEXTS.get((folder / name).parent.name, (folder / name).parent.name)
        for label in sorted(models, key=list(MODELS).index):
            found.append((f"{text}, {MODELS[label]}, rate {rate_of(folder / name)}: {title}", models[label]))
    columns: Dict[str, Optional[int]] = {**{f"{limit:,}": limit for limit in sorted(every)}, "all": None}
    return table_of(
        [
            {"tokens remembered at most": title, **{column: cells.get(limit, "") for column, limit in columns.items()}}
            for title, cells in found
        ]
    )
