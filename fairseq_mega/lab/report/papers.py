"""The tables of both papers by report name: MEGA (Ma et al., ICLR 2023) and MEGALODON (Ma et al., NeurIPS 2024).

A published value of a model that a recipe trains is in the recipe; a new table is a further PaperTable below.
"""

from functools import partial
from typing import Dict, List, Optional, Sequence

from fairseq_mega.lab.evaluate.lra_runs import BENCHMARK, LRA, TASKS, scaling_of, shortened
from fairseq_mega.lab.prepare.classification.imagenet import IMAGES
from fairseq_mega.lab.recipes.catalogue import find
from fairseq_mega.lab.recipes.paper_values import paper_values
from fairseq_mega.lab.report.classifier_table import ClassifierTable, accuracy, average
from fairseq_mega.lab.report.numbers import mean_and_deviation
from fairseq_mega.lab.report.paper_table import Column, Groups, PaperTable, Rule, SpeedColumns, parameters, where
from fairseq_mega.lab.runs.results import Result

FULL, SPEECH_CHUNK = -1, TASKS["speech"].chunk
RECIPES = ("mega/table2", "mega/table3", "mega/figure4", "mega/figure5")  # models whose trainings are in several tables
BASELINES = {"Transformer": "transformer", "S4D-Inv": "s4d"}
SPEED_NAMES = {"Transformer": "transformer", "MEGA": "mega", "MEGA-chunk": "mega-chunk"}
MEANS = "paper: mean of 5 seeds; measured: test accuracy of the checkpoint of best validation accuracy"
QUOTED = "quoted: from the paper; no recipe trains this row"
OPEN_CLASSIFIER = "measured rows: our interpretation, because the paper leaves the architecture of classifiers open"
OPEN = "measured rows: our interpretation where the paper is open, see the notes of the recipe"
OF_ARENA = [Column(TASKS[task].title, accuracy, where(task=task)) for task in LRA]


def nothing(results: Sequence[Result]) -> str:
    """Return the cell of a column that is not measured."""
    return "-"


# MEGA, Tables 2 to 4, and MEGALODON, Tables 6 and 7: the Long Range Arena and speech; means of 5 seeds.


def of_arena(model: str, chunked: Optional[bool] = None, attention: str = "", tasks: Sequence[str] = LRA) -> Rule:
    """Return a rule for results of a model on tasks of the Long Range Arena.

    Args:
        model: as in results; MEGA has the paper's N.
        chunked: whether attention is chunked or full; None for both.
        attention: function of MEGA, by default the task's.
        tasks: of the table.
    """

    def rule(result: Result) -> bool:
        settings = result["settings"]
        if settings["model"] != model or settings["task"] not in tasks:
            return False
        task = TASKS[settings["task"]]
        kind = (settings["attention"], settings["ema_dim"])
        is_papers = model != "mega" or kind == (attention or task.attention, task.ema_dim)
        return is_papers and chunked in (None, settings["chunk"] != FULL)

    return rule


def by_chunk(results: List[Result], name: str) -> Groups:
    """Part results with other chunks than the paper's from the other results."""
    groups: Dict[int, List[Result]] = {FULL: []}
    for result in results:
        chunk, task = result["settings"]["chunk"], TASKS[result["settings"]["task"]]
        groups.setdefault(FULL if chunk == task.chunk else chunk, []).append(result)
    return [
        (name if chunk == FULL else f"{own[0]['settings']['model'].upper()}-chunk, C = {chunk}, measured", own)
        for chunk, own in sorted(groups.items())
    ]


def by_scaling(results: List[Result], name: str) -> Groups:
    """Part results on speech by the scaling of the recordings."""
    scalings = sorted(set(map(scaling_of, results))) or [""]
    return [(name + scaling, [one for one in results if scaling_of(one) == scaling]) for scaling in scalings]


TABLE2 = ClassifierTable(
    "MEGA, Table 2: the Long Range Arena",
    (BENCHMARK,),
    RECIPES,
    "Table 2, test accuracy",
    [*OF_ARENA, Column("average", average), Column("speed", nothing), Column("memory", nothing)],
    {  # speed and memory beside the Transformer's, training on Text with 4K input
        "Transformer": (*paper_values("table2", "transformer", LRA), "59.24", "1x", "1x"),
        "Transformer, as first published": ("36.37", "64.27", "57.46", "42.44", "71.40", "fails", "54.39", "-", "-"),
        "Reformer": ("37.27", "56.10", "53.40", "38.07", "68.50", "fails", "50.67", "0.8x", "0.24x"),
        "Linformer": ("35.70", "53.94", "52.27", "38.56", "76.34", "fails", "51.36", "5.5x", "0.10x"),
        "BigBird": ("36.05", "64.02", "59.29", "40.83", "74.87", "fails", "55.01", "1.1x", "0.30x"),
        "Performer": ("18.01", "65.40", "53.82", "42.77", "77.05", "fails", "51.41", "5.7x", "0.11x"),
        "Luna-256": ("37.98", "65.78", "79.56", "47.86", "78.55", "fails", "61.95", "4.9x", "0.16x"),
        "S4D-Inv": (*paper_values("table2", "s4d", LRA), "85.50", "-", "-"),
        "S4-v1": ("58.35", "76.02", "87.09", "87.26", "86.05", "88.10", "80.48", "-", "-"),
        "S4-v2": ("59.60", "86.82", "90.90", "88.65", "94.20", "96.35", "86.09", "-", "-"),
        "S4-v2 (re-run)": ("59.10", "86.53", "90.94", "88.48", "94.01", "96.07", "85.86", "4.8x", "0.14x"),
        "MEGA": (*paper_values("table2", "mega", LRA), "88.21", "2.9x", "0.31x"),
        "MEGA-chunk": (*paper_values("table2", "mega_chunk", LRA), "85.66", "5.5x", "0.13x"),
    },
    {
        **{name: of_arena(model) for name, model in BASELINES.items()},
        "MEGA": of_arena("mega", chunked=False),
        "MEGA-chunk": of_arena("mega", chunked=True),
    },
    by_chunk,
    {title: recipe.values_from for title, model in BASELINES.items() for recipe in find(f"mega/table2/text/{model}")},
    notes=(MEANS, QUOTED),
    speed=SpeedColumns({"task": "text"}, ["lra-speed", "--length", "4096"], SPEED_NAMES),
)
FUNCTIONS = ("softmax", "relu2", "laplace")
TABLE3 = ClassifierTable(
    "MEGA, Table 3: attention functions",
    (BENCHMARK,),
    RECIPES,
    "Table 3, test accuracy",
    [Column(TASKS[task].title, accuracy, where(task=task)) for task in ("text", "image")],
    {name: tuple(paper_values("table3", name, ["text", "image"])) for name in FUNCTIONS},
    {name: of_arena("mega", attention=name, tasks=("text", "image")) for name in FUNCTIONS},
    notes=(MEANS,),
    chunk=FULL,
    chunk_words=lambda chunk: "full attention" if chunk < 0 else f"chunks of {chunk}",
)
TABLE4 = ClassifierTable(
    "MEGA, Table 4: raw speech",
    (BENCHMARK,),
    ("mega/table4",),
    "Table 4, test accuracy",
    [Column("parameters", parameters), Column("SC10", accuracy)],
    {
        "Transformer": ("786K", "not runnable"),
        "S4": ("300K", "97.50"),  # the paper's re-run
        "MEGA-chunk base": ("300K", *paper_values("table4", "base", ["speech"])),
        "MEGA-chunk big": ("476K", *paper_values("table4", "big", ["speech"])),
    },
    {f"MEGA-chunk {size}": where(task="speech", model=f"mega-{size}") for size in ("base", "big")},
    by_scaling,
    notes=(MEANS, QUOTED),
    chunk=SPEECH_CHUNK,
)
ARENA6 = {name: name for name in ("Transformer", "Reformer", "Linformer", "BigBird", "Luna-256")}
ARENA6.update({"S4": "S4-v2 (re-run)", "MEGA-chunk": "MEGA-chunk", "MEGA": "MEGA"})
MEGALODON6 = ClassifierTable(
    "MEGALODON, Table 6: the Long Range Arena",
    (BENCHMARK,),
    ("megalodon/table6",),
    "MEGALODON, Table 6, test accuracy",
    [*OF_ARENA, Column("average", average)],
    {  # for other models the values of MEGA's Table 2
        **{name: tuple(TABLE2.rows[row][:7]) for name, row in ARENA6.items()},
        "MEGALODON": (*paper_values("table6", "megalodon", LRA, paper="megalodon"), "88.63"),
        "MEGALODON-chunk": (*paper_values("table6", "megalodon_chunk", LRA, paper="megalodon"), "87.62"),
    },
    {
        **dict.fromkeys(("Transformer", "MEGA-chunk", "MEGA")),
        "MEGALODON": of_arena("megalodon", chunked=False),
        "MEGALODON-chunk": of_arena("megalodon", chunked=True),
    },
    by_chunk,
    notes=(MEANS, QUOTED, OPEN_CLASSIFIER),
)
MEGALODON7 = ClassifierTable(
    "MEGALODON, Table 7: raw speech",
    (BENCHMARK,),
    ("megalodon/table7",),
    "MEGALODON, Table 7, test accuracy",
    TABLE4.columns,
    {**TABLE4.rows, "MEGALODON-chunk": ("300K", *paper_values("table7", "megalodon", ["speech"], paper="megalodon"))},
    {
        **dict.fromkeys(("MEGA-chunk base", "MEGA-chunk big")),
        "MEGALODON-chunk": where(task="speech", model="megalodon", chunk=SPEECH_CHUNK),
    },
    notes=(MEANS, QUOTED, OPEN_CLASSIFIER),
)

# MEGA, Table 6, and MEGALODON, Table 4: ImageNet-1k.

NOTE = "measured: on the 50,000 validation images, which also select the best epoch"
STAR = "* fewer updates than in the paper, or other images: not comparable with the paper's numbers"
EPOCHS = {"best": ", best epoch", "last": ", last epoch", "given": ""}


def top1(results: Sequence[Result]) -> str:
    """Return the top-1 accuracy over the seeds, with a star if it cannot be compared with the paper's."""
    if not results:
        return "-"
    images = {(result["settings"].get("train_examples", IMAGES["train"]), result["examples"]) for result in results}
    star = "*" if any(map(shortened, results)) or images != {(IMAGES["train"], IMAGES["valid"])} else ""
    return mean_and_deviation([result["scores"]["top1_accuracy"] for result in results]) + star


def by_checkpoint(results: List[Result], name: str, titles: Dict[str, str]) -> Groups:
    """Part results by the scored checkpoint; the titles are ends of names by checkpoint."""
    found = [
        (name + title, [result for result in results if result["settings"].get("checkpoint") == checkpoint])
        for checkpoint, title in titles.items()
    ]
    return [(title, own) for title, own in found if own] or [(name, [])]


TABLE6 = PaperTable(
    "MEGA, Table 6: ImageNet",
    ("imagenet",),
    ("mega/table6",),
    "Table 6, ImageNet-1k",
    [Column("parameters", parameters), Column("top-1 accuracy", top1)],
    {
        "ResNet-152": ("60M", "78.3"),
        "ViT-B, 384 pixels": ("86M", "77.9"),
        "DeiT-B": ("86M", *paper_values("table6", "deit_b", ["imagenet"], "top1_accuracy")),
        "MEGA": ("90M", *paper_values("table6", "mega", ["imagenet"], "top1_accuracy")),
    },
    {"DeiT-B": where(model="deit_b"), "MEGA": where(model="mega")},
    partial(by_checkpoint, titles=EPOCHS),
    notes=(NOTE,),
    star=STAR,
    script="mega_table6_imagenet.sh",
)
MEGALODON4 = PaperTable(
    "MEGALODON, Table 4: ImageNet",
    ("imagenet",),
    ("megalodon/table4",),
    "MEGALODON, Table 4, ImageNet-1k",
    TABLE6.columns,
    {
        **TABLE6.rows,
        "MEGALODON": ("90M", *paper_values("table4", "megalodon", ["imagenet"], "top1_accuracy", "megalodon")),
    },
    {"DeiT-B": None, "MEGA": None, "MEGALODON": where(model="megalodon")},
    partial(by_checkpoint, titles=EPOCHS),
    notes=(NOTE, OPEN_CLASSIFIER),
    star=STAR,
    script="megalodon_table4_imagenet.sh",
)

# MEGA, Table 5, and MEGALODON, Tables 5 and 8: language models. The papers do not name the hardware of their speeds;
# no recipe measures the perplexity of the validation set.

METRICS = {"wikitext103": ("perplexity", 2), "enwik8": ("bits_per_token", 3)}
(TRANSFORMER,) = paper_values("table5", "transformer", ["wikitext103"], "perplexity")
(MEGA,) = paper_values("table5", "mega", ["wikitext103"], "perplexity")
(ENWIK8,) = paper_values("table5", "mega", ["enwik8"], "bits_per_token")
(PG19,) = paper_values("table5", "megalodon", ["pg19"], "word_perplexity", "megalodon")
(MEGALODON,) = paper_values("table8", "megalodon", ["wikitext103"], "perplexity", "megalodon")


def score(results: Sequence[Result], metric: str = "") -> str:
    """Return the score of a result by a metric, by default the metric of its data set."""
    if not results:
        return "-"
    metric, digits = (metric, 2) if metric else METRICS[results[0]["label"].split(".")[0]]
    return f"{results[0]['scores'][metric]:.{digits}f}"


def speed(results: Sequence[Result]) -> str:
    """Return the tokens per second of a result."""
    return f"{results[0]['scores']['tokens_per_second']:,.0f}" if results else "-"


def updates(results: Sequence[Result]) -> str:
    """Return the updates of a result."""
    found = results[0]["settings"].get("max_update") if results else None
    return f"{found:,}" if found else "-"


def each(results: List[Result], name: str) -> Groups:
    """Make a row for each result."""
    seeds = ["" if result["seed"] is None else f", seed {result['seed']}" for result in results]
    return [(f"{name}{seed}", [result]) for result, seed in zip(results, seeds)] or [(name, [])]


def each_model(results: List[Result], name: str) -> Groups:
    """Make a row for each result, which names the model and its context; all of a data set are below MEGA's row."""
    rows: Groups = []
    for result in results:
        settings, model = result["settings"], [*result["label"].split("."), "mega"][1]
        if model == "transformer":
            title = f"  Transformer, measured (context of at least {settings['context_window']})"
        else:
            title = "MEGA" if model == "mega" else model  # a user's recipe
            title = f"  {title}, measured (K = {settings['segments']}, chunk {settings['chunk_size']})"
        rows += each([result], title)
    return rows or [("  MEGA, measured", [])]


def on_text(name: str) -> Rule:
    """Return a rule for results on a data set of text."""
    return lambda result: result["label"].split(".")[0] == name


OF_LANGUAGE = [Column("tokens/s", speed), Column("updates", updates)]
TABLE5 = PaperTable(
    "MEGA, Table 5: language models",
    ("table5",),
    ("mega/table5",),
    "Table 5",
    [Column("parameters", parameters), Column("score", None), Column("test", score), *OF_LANGUAGE],
    {
        "wikitext103, Transformer, adaptive (Baevski and Auli)": ("247M", "perplexity", TRANSFORMER, "5.6k", "-"),
        "wikitext103, Transformer-XL": ("257M", "perplexity", "18.30", "-", "-"),
        "wikitext103, S4": ("249M", "perplexity", "20.95", "-", "-"),
        "wikitext103, MEGA": ("252M", "perplexity", MEGA, "48k", "-"),
        "enwik8, Transformer-XL": ("41M", "bits per character", "1.06", "-", "-"),
        "enwik8, MEGA": ("39M", "bits per character", ENWIK8, "-", "-"),
    },
    {
        "wikitext103, Transformer, adaptive (Baevski and Auli)": None,
        "wikitext103, MEGA": on_text("wikitext103"),
        "enwik8, MEGA": on_text("enwik8"),
    },
    each_model,
    averaged=False,
)
MEGALODON5 = PaperTable(
    "MEGALODON, Table 5: PG-19",
    ("megalodon-table5",),
    ("megalodon/table5",),
    "MEGALODON, Table 5, PG-19",
    [
        Column("parameters", parameters),
        Column("test word perplexity", partial(score, metric="word_perplexity")),
        *OF_LANGUAGE,
        Column("validation", nothing),
    ],
    {
        "Compressive Transformer": ("-", "33.60", "-", "-", "43.4"),
        "Perceiver AR": ("975M", "28.90", "-", "-", "45.9"),
        "Block-Recurrent Transformer": ("1.3B", "26.50", "-", "-", "-"),
        "MEGABYTE": ("1.3B", "36.40", "-", "-", "42.8"),
        "MEGALODON": ("1.3B", PG19, "-", "-", "29.5"),
    },
    {"MEGALODON": where()},
    each,
    notes=(OPEN,),
    averaged=False,
)
MEGALODON8 = PaperTable(
    "MEGALODON, Table 8: WikiText-103",
    ("megalodon-table8",),
    ("megalodon/table8",),
    "MEGALODON, Table 8, WikiText-103",
    [Column("parameters", parameters), Column("test perplexity", partial(score, metric="perplexity")), *OF_LANGUAGE],
    {
        "Transformer": ("247M", TRANSFORMER, "-", "-"),
        "Transformer-XL": ("257M", "18.30", "-", "-"),
        "S4": ("249M", "20.95", "-", "-"),
        "MEGA": ("252M", MEGA, "-", "-"),
        "MEGALODON": ("252M", MEGALODON, "-", "-"),
    },
    {"Transformer": None, "MEGA": None, "MEGALODON": where()},
    each,
    notes=(OPEN,),
    averaged=False,
)

# MEGA, Table 7: WMT'16 English-German, newstest2014; means of 5 seeds.

DIRECTIONS, BLEU = ("en-de", "de-en"), {"tokenized_bleu": "tokenised", "sacrebleu": "Sacre"}
CHECKPOINTS = {"best": ", best checkpoint", "average": ", averaged checkpoints", "given": ""}
TRANSLATORS = {  # names of recipes by row
    "Transformer base (re-run)": "transformer",
    "MEGA softmax": "mega_softmax",
    "MEGA laplace": "mega_laplace",
}


def bleu(results: Sequence[Result], metric: str = "tokenized_bleu") -> str:
    """Return the mean over the seeds, and from two seeds on standard deviation and number."""
    by_seed = {result["seed"]: result["scores"][metric] for result in results if metric in result["scores"]}
    count = f" ({len(by_seed)})" if len(by_seed) > 1 else ""
    return mean_and_deviation(list(by_seed.values())) + count if by_seed else "-"


TABLE7 = PaperTable(
    "MEGA, Table 7: translation",
    ("wmt16-newstest2014",),
    ("mega/table7",),
    "newstest2014, BLEU",
    [
        Column(f"{direction} {title}", partial(bleu, metric=metric), where(direction=direction))
        for direction in DIRECTIONS
        for metric, title in BLEU.items()
    ],
    {
        "Transformer base (published)": ("27.30", "-", "-", "-"),
        **{
            title: [
                value
                for pair in zip(*(paper_values("table7", recipe, DIRECTIONS, one) for one in BLEU))
                for value in pair
            ]
            for title, recipe in TRANSLATORS.items()
        },
    },
    {
        "Transformer base (re-run)": where(model="transformer"),
        "MEGA softmax": where(attention="softmax"),
        "MEGA laplace": where(attention="laplace"),
    },
    partial(by_checkpoint, titles=CHECKPOINTS),
    script="mega_table7_wmt16.sh",
    notes=("paper: mean of 5 seeds; tokenised = compounds split",),
)

# MEGA, Table 1, the summary of its other tables.


SUMMARISED = ((TABLE2, 6), (TABLE7, 0), (TABLE5, 2), (TABLE6, 1), (TABLE4, 1))  # tables and columns
SUMMARY = {  # rows of Table 1 to rows of these tables
    "Transformer": (
        *("Transformer", "Transformer base (re-run)", "wikitext103, Transformer, adaptive (Baevski and Auli)"),
        *("DeiT-B", "Transformer"),
    ),
    "S4": ("S4-v2 (re-run)", "", "wikitext103, S4", "", "S4"),
    "MEGA": ("MEGA", "MEGA softmax", "wikitext103, MEGA", "MEGA", "MEGA-chunk base"),
}


def summarised(model: str) -> Rule:
    """Return a rule for the results of a model's row in Table 1."""

    def rule(result: Result) -> bool:
        if result["benchmark"].startswith(TABLE5.benchmarks):
            return list(result["label"].split(".")[:2]) == ["wikitext103", model.lower()]
        rows = [(table, row) for (table, _), row in zip(SUMMARISED, SUMMARY[model])]
        return any(
            table.selected([result], row) for table, row in rows if result["benchmark"].startswith(table.benchmarks)
        )

    return rule


def mean_of_arena(results: Sequence[Result]) -> str:
    """Return the mean over the tasks, of Transformers without Path-X, on which they fail."""
    fails = any(result["settings"].get("model") == "transformer" for result in results)
    return average(results, [task for task in LRA if not (fails and task == "pathx")])


def lowest(results: Sequence[Result]) -> str:
    """Return the perplexity, the lowest over the contexts."""
    found = [result["scores"]["perplexity"] for result in results if "perplexity" in result["scores"]]
    return f"{min(found):.2f}" if found else "-"


TABLE1 = PaperTable(
    "MEGA, Table 1: the summary of Tables 2, 4, 5, 6 and 7",
    (BENCHMARK, *TABLE7.benchmarks, *TABLE5.benchmarks, *TABLE6.benchmarks),
    tuple(folder for table, _ in SUMMARISED for folder in table.recipes),
    "Table 1",
    [
        Column("LRA", mean_of_arena),
        Column("WMT16 en-de", bleu, where(direction="en-de", checkpoint="best")),
        Column("WikiText-103", lowest),
        Column("ImageNet", top1, where(checkpoint="last")),
        Column("SC", accuracy, where(task="speech")),
    ],
    {
        name: [table.rows[row][column] if row else "-" for (table, column), row in zip(SUMMARISED, rows)]
        for name, rows in SUMMARY.items()
    },
    {"Transformer": summarised("Transformer"), "MEGA": summarised("MEGA")},
    notes=("LRA: mean of six tasks (of Transformers five); WMT16: tokenised BLEU; WikiText-103: perplexity",),
    star=STAR,
)
PAPER_TABLES: Dict[str, PaperTable] = {
    "table2": TABLE2,
    "table3": TABLE3,
    "table4": TABLE4,
    "table5": TABLE5,
    "table6": TABLE6,
    "table7": TABLE7,
    "megalodon-table4": MEGALODON4,
    "megalodon-table5": MEGALODON5,
    "megalodon-table6": MEGALODON6,
    "megalodon-table7": MEGALODON7,
    "megalodon-table8": MEGALODON8,
}
