"""MEGA's Table 5, and MEGALODON's Tables 5 and 8: language models, measured beside the papers' numbers."""

from functools import partial
from typing import List, Sequence

from fairseq_mega.lab.recipes.paper_values import paper_values
from fairseq_mega.lab.report.paper_table import PaperTable, Rows
from fairseq_mega.lab.runs.results import Result

SCORE = {"wikitext103": ("perplexity", "perplexity", 2), "enwik8": ("bits_per_token", "bits per character", 3)}
INTERPRETATION = "measured rows: our interpretation where the paper is open, see the notes of the recipe"
(TRANSFORMER,) = paper_values("table5", "transformer", ["wikitext103"], "perplexity")
(MEGA,) = paper_values("table5", "mega", ["wikitext103"], "perplexity")


def seed_of(result: Result) -> str:
    """Return the addition to a row's name for a seed."""
    return "" if result["seed"] is None else f", seed {result['seed']}"


def cells_of(result: Result, metric: str, digits: int = 2) -> List[str]:
    """Return parameters, score, tokens per second and updates."""
    settings, scores = result["settings"], result["scores"]
    updates = f"{settings['max_update']:,}" if settings.get("max_update") else "-"
    speed = f"{scores['tokens_per_second']:,.0f}"
    return [f"{settings['parameters']:,}", f"{scores[metric]:.{digits}f}", speed, updates]


def of_mega(results: Sequence[Result], task: str) -> Rows:
    """Return a row for each result of a data set, or one row without results."""
    metric, unit, digits = SCORE[task]
    rows = []
    for result in results:
        data, model = (*result["label"].split("."), "mega")[:2]
        if data != task:
            continue
        settings = result["settings"]
        if model == "transformer":
            name = f"  Transformer, measured (context of at least {settings['context_window']})"
        else:
            title = "MEGA" if model == "mega" else model  # a user's recipe
            name = f"  {title}, measured (K = {settings['segments']}, chunk {settings['chunk_size']})"
        parameters, *others = cells_of(result, metric, digits)
        rows.append([name + seed_of(result), parameters, unit, *others])
    return rows or [["  MEGA, measured", "-", unit, "not yet", "-", "-"]]


def of_megalodon(results: Sequence[Result], metric: str, more: Sequence[str] = ()) -> Rows:
    """Return a row for each result, followed by ``more``, or one row without results."""
    rows = [["  measured" + seed_of(result), *cells_of(result, metric), *more] for result in results]
    return rows or [["  measured", "-", "not yet", "-", "-", *more]]


# MEGA (Ma et al., ICLR 2023), Table 5; the hardware of the speeds is not stated. All results on a data set are below
# MEGA's row.
TABLE5 = PaperTable(
    "MEGA, Table 5: language models",
    ("table5",),
    ("mega/table5",),
    ["Table 5", "parameters", "score", "test", "tokens/s", "updates"],
    {
        "wikitext103, Transformer, adaptive (Baevski and Auli)": ("247M", "perplexity", TRANSFORMER, "5.6k", "-"),
        "wikitext103, Transformer-XL": ("257M", "perplexity", "18.30", "-", "-"),
        "wikitext103, S4": ("249M", "perplexity", "20.95", "-", "-"),
        "wikitext103, MEGA": ("252M", "perplexity", MEGA, "48k", "-"),
        "enwik8, Transformer-XL": ("41M", "bits per character", "1.06", "-", "-"),
        "enwik8, MEGA": (
            *("39M", "bits per character"),
            *(*paper_values("table5", "mega", ["enwik8"], "bits_per_token"), "-", "-"),
        ),
    },
    {
        "wikitext103, Transformer, adaptive (Baevski and Auli)": None,
        "wikitext103, MEGA": "wikitext103",
        "enwik8, MEGA": "enwik8",
    },
    of_mega,
    averaged=False,
)
# MEGALODON (Ma et al., NeurIPS 2024), Tables 5 and 8; no recipe measures the perplexity of the validation set.
MEGALODON5 = PaperTable(
    "MEGALODON, Table 5: PG-19",
    ("megalodon-table5",),
    ("megalodon/table5",),
    ["MEGALODON, Table 5, PG-19", "parameters", "test word perplexity", "tokens/s", "updates", "validation"],
    {
        "Compressive Transformer": ("-", "33.60", "-", "-", "43.4"),
        "Perceiver AR": ("975M", "28.90", "-", "-", "45.9"),
        "Block-Recurrent Transformer": ("1.3B", "26.50", "-", "-", "-"),
        "MEGABYTE": ("1.3B", "36.40", "-", "-", "42.8"),
        "MEGALODON": (
            *("1.3B", *paper_values("table5", "megalodon", ["pg19"], "word_perplexity", "megalodon")),
            *("-", "-", "29.5"),
        ),
    },
    {"MEGALODON": "word_perplexity"},
    partial(of_megalodon, more=["-"]),
    notes=(INTERPRETATION,),
    averaged=False,
)
MEGALODON8 = PaperTable(
    "MEGALODON, Table 8: WikiText-103",
    ("megalodon-table8",),
    ("megalodon/table8",),
    ["MEGALODON, Table 8, WikiText-103", "parameters", "test perplexity", "tokens/s", "updates"],
    {
        "Transformer": ("247M", TRANSFORMER, "-", "-"),
        "Transformer-XL": ("257M", "18.30", "-", "-"),
        "S4": ("249M", "20.95", "-", "-"),
        "MEGA": ("252M", MEGA, "-", "-"),
        "MEGALODON": (
            *("252M", *paper_values("table8", "megalodon", ["wikitext103"], "perplexity", "megalodon")),
            *("-", "-"),
        ),
    },
    {"Transformer": None, "MEGA": None, "MEGALODON": "perplexity"},
    of_megalodon,
    notes=(INTERPRETATION,),
    averaged=False,
)
