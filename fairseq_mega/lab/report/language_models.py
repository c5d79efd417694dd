"""Result files of language models as a table: perplexity and bits per token over contexts and chunks."""

import argparse
from pathlib import Path
from typing import Any, Dict, List

from fairseq_mega.lab.runs.report import Report, add_format, show, warn_of_smoke
from fairseq_mega.lab.runs.results import read_results, with_changes
from fairseq_mega.lab.runs.text_tables import Table, table_of

BENCHMARK = "compare-language-models"  # of scripts/compare_language_models.sh


def context_of(settings: Dict[str, Any]) -> str:
    """Return the context of a token, in words."""
    if settings.get("longest_segment") is not None:
        mean = f"{settings['mean_segment']:,.0f}"
        return f"segments of {mean} tokens, all of them seen" if settings.get("segments") != 1 else "the whole text"
    block, window = settings["trained_chunk_or_block"], settings.get("context_window")
    return f"blocks of {block}" if window is None else f"the last {window} to {block}"


def model_of(result: Dict[str, Any]) -> str:
    """Return the model of a result; for a recipe also the text, the learning rate and the seed."""
    settings = result["settings"]
    if "recipe" not in settings:
        return str(result["label"])
    name = f"{settings['task']}: {settings['model']}, rate {settings['lr']:g}, seed {result['seed']}"
    return name + with_changes(result)


def order(result: Dict[str, Any]) -> Any:
    """Sort key: models by name, contexts from short to long."""
    settings = result["settings"]
    return model_of(result), settings.get("mean_segment") or settings.get("context_window") or 0


def table(results: List[Dict[str, Any]]) -> Table:
    """Return a table with a row for each result."""
    rows = []
    for result in sorted(results, key=order):
        settings, scores = result["settings"], result["scores"]
        streamed = settings.get("longest_segment") is not None
        chunk = str(settings.get("chunk_size", settings["trained_chunk_or_block"])) if streamed else "-"
        rows.append(
            {
                "model": model_of(result),
                "parameters": f"{settings['parameters']:,}",
                "context": context_of(settings),
                "chunk": chunk,
                "tokens scored": f"{result['examples']:,}",
                "perplexity": f"{scores['perplexity']:.2f}",
                "bits per token": f"{scores['bits_per_token']:.4f}",
                "tokens/s": f"{scores['tokens_per_second']:,.0f}",
            }
        )
    return table_of(rows)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``language-models``."""
    parser.add_argument("results", type=Path, help="folder of result files")
    parser.add_argument("--benchmark", default="language-modeling", help="name in the result files")
    add_format(parser, "markdown")


def run(options: argparse.Namespace) -> None:
    """Print the table."""
    results = read_results(options.results, options.benchmark)
    if not results:
        raise ValueError(f"{options.results} contains no result of {options.benchmark!r}")
    show(options, [table(results)])
    warn_of_smoke(options.benchmark.endswith("-smoke"))


REPORT = Report("Print the scores of language models over contexts and chunks.", add_options, run)
