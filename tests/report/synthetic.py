"""Results of all reports with invented scores: the recipes', with changed settings, and of given weights."""

from pathlib import Path
from typing import Any, Dict, Optional

from fairseq_mega.lab.evaluate.lra_runs import LRA, TASKS
from fairseq_mega.lab.runs.results import make_result, write_result

AUTHORS: Dict[str, Any] = {"authors": True, "source": "published archive lra.zip, x/y.pt", "sha256": "ab" * 32}
OF_FILE: Dict[str, Any] = {
    "authors": False,
    "source": "model.pt",
    "sha256": "cd" * 32,
    "differs": ["model.dropout 0.5, not 0.1"],
}
CHANGED: Dict[str, Any] = {"set": {"optimization.lr": "0.1"}, "extra": "--sentence-avg", "conditions": "9"}


def put(
    folder: Path,
    benchmark: str,
    recipe: str,
    scores: Dict[str, float],
    examples: int = 10,
    seed: Optional[int] = 1,
    label: str = "run",
    details: Any = (),
    **settings: Any,
) -> None:
    """Write a result of a recipe, of a fixed day, machine and revision."""
    settings = {"recipe": recipe, "data": "released", "parameters": 7654, **settings}
    result = make_result(benchmark, label, scores, examples, "command", seed, settings, **dict(details))
    result.update(git_revision="0123456789abcdef", date="2026-01-02T03:04:05+00:00")
    result["hardware"].update(processor="CPU X", cores=3, gpus=[])
    write_result(folder / f"{len(list(folder.glob('*'))):03d}.json", result)


def classifier(
    folder: Path, recipe: str, accuracy: float, seed: Optional[int] = 1, best: Optional[float] = None, **settings: Any
) -> None:
    """Write a result of a classifier; its folder and its name are the last parts of the recipe."""
    _, task, _ = recipe.rsplit("/", 2)
    about = {"task": task, "model": "mega", "attention": TASKS[task].attention, "ema_dim": 16, "chunk": -1}
    about.update(updates=100, published_updates=100, early_epoch=2, trained_on=["H200"])
    best = accuracy if best is None else best
    scores = {"test_accuracy": accuracy, "best_valid_accuracy": best, "early_valid_accuracy": 33.0}
    scores.update(seconds_per_epoch=12.5, peak_memory_gib=3.25)
    curve = [{"epoch": epoch, "updates": 50 * epoch, "accuracy": best - epoch, "loss": 1.0} for epoch in (1, 2, 3)]
    put(folder, "lra", recipe, scores, 29, seed, details={"curve": curve}, **{**about, **settings})


def classifiers(folder: Path) -> None:
    """Write results of MEGA's Tables 2, 3 and 4, Figures 4 and 5, and of MEGALODON's Tables 6 and 7."""
    for seed, accuracy in ((1, 60.0), (2, 62.0)):
        classifier(folder, "mega/table2/listops/mega", accuracy, seed)
    for task in ("text", "retrieval", "image", "pathx"):
        classifier(folder, f"mega/table2/{task}/mega", 90.0)
    classifier(folder, "mega/table2/pathfinder/mega", 96.0)
    classifier(folder, "mega/table2/pathfinder/mega", 60.0, 2, best=50.1)  # at chance
    classifier(folder, "mega/table3/image/softmax", 11.0, attention="softmax")
    classifier(folder, "mega/table3/text/relu2", 89.0, attention="relu2")
    classifier(folder, "mega/table3/text/relu2", 10.0, attention="relu2", chunk=128)
    classifier(folder, "mega/figure4/image/n0", 12.0, ema_dim=0)
    classifier(folder, "mega/figure4/text/n2", 80.5, ema_dim=2)
    classifier(folder, "mega/figure4/text/c16", 81.6, chunk=16)
    classifier(folder, "mega/figure5/pathfinder/relu2", 95.0, attention="relu2")
    classifier(folder, "mega/table2/pathx/mega_chunk", 70.0, chunk=4096, updates=50)
    for task in LRA[:4]:
        classifier(folder, f"mega/table2/{task}/mega_chunk", 85.0, 3, chunk=TASKS[task].chunk)
    for task in LRA:
        classifier(folder, f"mega/table2/{task}/s4d", 80.0, model="s4d", attention="none", ema_dim=64)
        classifier(folder, f"megalodon/table6/{task}/megalodon", 88.0, model="megalodon")
    for task in [task for task in LRA if task != "pathx"]:
        classifier(folder, f"mega/table2/{task}/transformer", 65.0, model="transformer", ema_dim=0)
    classifier(
        folder, "megalodon/table6/text/megalodon_chunk", 87.0, model="megalodon", chunk=TASKS["text"].chunk, updates=9
    )
    for scaling, accuracy in (("once", 95.0), ("twice", 97.0)):
        classifier(folder, "mega/table4/speech/base", accuracy, model="mega-base", chunk=1000, scaling=scaling)
    classifier(folder, "mega/table4/speech/big", 97.5, model="mega-big", chunk=1000)
    classifier(folder, "megalodon/table7/speech/megalodon", 98.0, model="megalodon", chunk=1000)
    classifier(folder, "mega/table2/text/mega", 91.0, 1, weights=AUTHORS)
    classifier(folder, "mega/table2/image/mega", 91.5, None, weights=OF_FILE)
    classifier(folder, "mega/table2/text/mega", 55.0, 9, **CHANGED)


def language_models(folder: Path) -> None:
    """Write results of MEGA's Table 5, and of MEGALODON's Tables 5 and 8 and Figure 5."""

    def store(recipe: str, benchmark: str, label: str, score: float, seed: Optional[int] = 1, **settings: Any) -> None:
        about = {"segments": 50, "chunk_size": 8, "max_update": 1000, **settings}
        scores = {"perplexity": score, "word_perplexity": score + 1, "bits_per_token": score / 10}
        put(folder, benchmark, recipe, {**scores, "tokens_per_second": 3000.4}, 80, seed, label, **about)

    store("mega/table5/wikitext103/mega", "table5", "wikitext103.mega.seed1", 18.5)
    store("mega/table5/wikitext103/mega", "table5", "wikitext103.mega.seed1", 18.25, segments=1)
    transformer: Dict[str, Any] = {"context_window": 512, "max_update": None}
    store("mega/table5/wikitext103/transformer", "table5", "wikitext103.transformer.seed1", 18.75, **transformer)
    store("mega/table5/enwik8/mega", "table5", "enwik8.mega.seed2", 10.5, 2)
    store("mine.yaml", "table5", "enwik8.mega-relu-gate.seed7", 10.75, 7)
    store("mega/table5/enwik8/mega", "table5", "enwik8", 10.25, None, weights=AUTHORS)
    store("mega/table5/wikitext103/mega", "table5", "wikitext103.mega", 17.0, None, weights=OF_FILE)
    store("megalodon/table5/pg19/megalodon", "megalodon-table5", "pg19", 24.5)
    store("megalodon/table8/wikitext103/megalodon", "megalodon-table8", "wikitext103", 17.5, **CHANGED)
    store("megalodon/table8/wikitext103/megalodon", "megalodon-table8", "wikitext103", 17.75, 2)
    for context, score in ((4096, 12.5), (1024, 13.5)):
        store("megalodon/figure5/pg19/megalodon", "megalodon-figure5", "pg19", score, exact_context=context)


def contexts(folder: Path) -> None:
    """Write results of MEGA's Figure 6."""
    for mean, chunk, segments, score in (
        *((100.0, 2048, 25, 20.0), (50.0, 2048, 50, 19.0), (10.0, 2048, 250, 22.0)),
        *((100.0, 1024, 25, 21.0), (100.0, 4096, 25, 18.5), (5000.0, 2048, 1, 17.5)),
    ):
        about: Dict[str, Any] = {
            "mean_segment": mean,
            "chunk_size": chunk,
            "segments": segments,
            "checkpoint_sha256": "aa",
        }
        put(folder, "figure6", "mega/figure6/wikitext103/mega", {"perplexity": score}, label="mega", **about)


def images(folder: Path) -> None:
    """Write results of MEGA's Table 6 and MEGALODON's Table 4."""
    for model, checkpoint, accuracy, seed, more in (
        *(("mega", "best", 82.0, 1, {}), ("mega", "best", 83.0, 2, {}), ("mega", "last", 81.5, 1, {})),
        *(("mega", "last", 60.0, 3, CHANGED), ("mega", "given", 82.25, None, {"weights": AUTHORS})),
        *(("deit_b", "last", 80.0, 1, {"updates": 4}), ("megalodon", "best", 83.0, 1, {})),
        ("megalodon", "last", 82.5, 1, {"train_examples": 1_281_166}),
    ):
        about: Dict[str, Any] = {"updates": 5, "published_updates": 5, "train_examples": 1_281_167, **more}
        table = "megalodon/table4" if model == "megalodon" else "mega/table6"
        about.update(model=model, checkpoint=checkpoint)
        put(folder, "imagenet", f"{table}/imagenet/{model}", {"top1_accuracy": accuracy}, 50_000, seed, **about)


def translations(folder: Path) -> None:
    """Write results of MEGA's Table 7."""

    def store(direction: str, bleu: float, seed: Optional[int] = 1, kind: str = "softmax", **settings: Any) -> None:
        model = "transformer" if kind == "transformer" else "mega"
        recipe = f"mega/table7/{direction}/{'' if kind == model else 'mega_'}{kind}"
        about = {"direction": direction, "model": model, "attention": kind, "checkpoint": "average", **settings}
        scores = {"tokenized_bleu": bleu, "sacrebleu": bleu - 1}
        put(folder, "wmt16-newstest2014", recipe, scores, 3003, seed, **about)

    store("en-de", 29.0)
    store("en-de", 30.0, 11)
    store("de-en", 32.5)
    store("en-de", 28.5, checkpoint="best")
    store("en-de", 27.5, kind="transformer", checkpoint="best")
    store("en-de", 25.0, 3, **CHANGED)
    store("en-de", 29.5, None, "laplace", checkpoint="given", weights=OF_FILE)


def figure1(folder: Path) -> None:
    """Write results of MEGALODON's Figure 1 scaled down: its trainings, and two contexts or three."""
    for model, loss, spikes, seeds in (
        ("llama", 2.0, [5, 7], (2, 1, 3)),
        ("megalodon", 1.5, [3, 5, 6], (2, 1, 3)),
        ("megalodon_one_hop", 1.6, [5], (1,)),
    ):
        for seed in seeds:
            end, recipe = loss + 0.1 * (seed - 1), f"megalodon/figure1/gcide/{model}"
            about: Dict[str, Any] = {"model": model, "task": "gcide", "lr": 0.004}
            tokens = [500_000 * (n + 1) for n in range(8)]
            curve = {"tokens": tokens, "bits_per_token": [end + 8 / (n + 1) for n in range(8)]}
            details = {"curve": {"train": curve}, "spikes": spikes}
            scores = {"train_bits_per_token": end, "valid_bits_per_token": end + 0.25}
            put(folder, "megalodon-figure1", recipe, scores, 1, seed, "x", details, **about, updates=8, tokens=4e6)
            for context, bits in ((1024, end + 0.5), (2048, end + 0.75), (None, end + 1)):
                chosen: Dict[str, Any] = {"segments": 1} if context is None else {"exact_context": context}
                if context is not None or model == "megalodon":
                    put(folder, "megalodon-figure1", recipe, {"bits_per_token": bits}, 1, seed, **about, **chosen)
            if model == "llama":
                chosen = {"exact_context": 2048, "attention_window": 1024}
                put(folder, "megalodon-figure1", recipe, {"bits_per_token": end + 0.4}, 1, seed, **about, **chosen)


def figure4(folder: Path) -> None:
    """Write results of MEGALODON's Figure 4."""
    for size, model, speeds in (
        *(("11m", "llama", (100.0, 40.0)), ("11m", "megalodon", (80.0, 90.0))),
        ("200m", "megalodon", (8.0, 9.0)),
    ):
        scores: Dict[str, float] = {}
        for length, speed in zip((4096, 32768), speeds):
            values = {"tokens_per_second": speed, "memory_mib": length / 8, "parameters": 1234, "seconds": 1 / speed}
            scores.update({f"L={length} {key}": value for key, value in values.items()})
        put(folder, "megalodon-figure4", f"megalodon/figure4/{size}/{model}", scores, 1, task=size, model=model)


def quickstart(folder: Path) -> None:
    """Write results of the quick start, beside its data."""
    put(folder, "quickstart", "quickstart/translation", {"sacrebleu": 31.25}, 1000, task="translation")
    put(folder, "quickstart", "quickstart/lm", {"bits_per_token": 1.75, "perplexity": 3.0}, 500, task="lm")
    (folder / "card.json").write_text('{"kind": "translation"}', encoding="utf-8")


FOLDERS = {
    "classifiers": classifiers,
    "language_models": language_models,
    "contexts": contexts,
    "images": images,
    "translations": translations,
    "figure1": figure1,
    "figure4": figure4,
    "quickstart": quickstart,
}


def write_all(folder: Path) -> Path:
    """Write all results, in a folder for each kind; return it."""
    for name, write in FOLDERS.items():
        (folder / name).mkdir(parents=True)
        write(folder / name)
    scores = {"mega speed": 2.5, "mega memory": 0.4, "transformer speed": 1.25, "transformer memory": 0.8}
    speed = make_result("lra-speed", "4096 tokens", scores, 1, "c", None, {"models": "transformer-explicit,mega"})
    speed["hardware"].update(processor="CPU X", gpus=[])
    write_result(folder / "classifiers" / "speed.json", speed)
    (folder / "empty").mkdir()
    return folder
