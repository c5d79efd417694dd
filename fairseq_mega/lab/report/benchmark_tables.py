"""Tables of speed, memory and size for the documents, from result files of the benchmarks or from models on paper.

A table is a function of the document's folder and of the words behind its name in the marker, mostly result files.
"""

import argparse
import json
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Mapping, Optional, Sequence

import yaml
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_mega.lab.inspect.memory import model_of
from fairseq_mega.lab.inspect.recipe_models import BYTES, vocab_size_of_preset
from fairseq_mega.lab.report.numbers import FORMS, MIB, by_subject, mebibytes, milliseconds, ratio
from fairseq_mega.lab.report.papers import PAPER_TABLES
from fairseq_mega.lab.report.pictures import BASELINES, COMPILED, by_kind
from fairseq_mega.lab.runs.results import Result, read_result
from fairseq_mega.lab.runs.text_tables import Table
from fairseq_mega.models import on_paper
from fairseq_mega.models.cost import GIB, parameters
from fairseq_mega.models.image_classifier import ImageClassifier

Record = Dict[str, Any]
PRECISIONS = {
    "float32": "float32",
    "autocast": "bfloat16 under autocast",
    "bfloat16": "bfloat16 throughout",
    "float16": "float16 throughout",
}
MEMORIES = (16, 24, 40, 80)  # GiB


def the_result(folder: Path, words: Sequence[str]) -> Result:
    """Return the result of the one file that the words name."""
    (name,) = words
    return read_result(folder / name)


def timed(point: Mapping[str, Any], base: Optional[Mapping[str, Any]]) -> Record:
    """Return the texts of a measurement: its time, its speed relative to another measurement, and its memory."""
    faster = ratio(base["seconds"] / point["seconds"]) if base else ""
    return {
        "time": milliseconds(point["seconds"]),
        "faster": faster,
        "beside": f" ({faster})" if base is not None and base is not point else "",
        "mib": mebibytes(point.get("memory_mib", 0.0)),
    }


def points(folder: Path, words: Sequence[str], name: str) -> Iterator[Record]:
    """Yield a record for each point of each model in some files, with the settings of its file.

    Args:
        name: of the form in tables.yaml.
    """
    form = FORMS[name]
    results = {file: read_result(folder / file) for file in words}
    chunks: Dict[str, Any] = defaultdict(set)  # of each model in all files
    for result in results.values():
        for model in by_subject(result["scores"], form.axis):
            chunks[model].add(int(result["settings"].get("chunk_size", str(result["settings"].get("chunk", 0)))))
    for file, result in results.items():
        models = by_subject(result["scores"], form.axis)
        base = models.get(next(iter(models)) if form.base == "first" else form.base or "", {})
        for model, own in models.items():
            sizes = " or ".join(f"{size:,}" for size in sorted(chunks[model]))
            for at, point in own.items():
                record = {**result["settings"], **point, "file": file, "at": at, **timed(point, base.get(at))}
                if not form.only or form.only in point:
                    yield {
                        **record,
                        **derived(record, model, own),
                        "title": form.title(model.partition(", batch ")[0], sizes),
                    }


def derived(record: Record, model: str, own: Mapping[int, Mapping[str, float]]) -> Record:
    """Return what follows from a point among all points of its model, whose name may end with a batch."""
    end, memory = own[max(own)], record.get("memory_mib", 0.0)
    texts = record.get("batch", 1)
    batch = int(model.partition(", batch ")[2] or 1)
    rate, precision = batch * record["at"] / record["seconds"], record.get("dtype", "float32")
    return {
        "batch": batch,
        "texts": f"{texts} texts: " if texts > 1 else "",
        "precision": PRECISIONS.get(precision, precision),
        "rate": rate,
        "our_rate": rate * record.get("speed", 1.0),
        "our_mib": memory * record.get("memory", 1.0),
        "end": end,
        "past": mebibytes(end.get("bytes", 0.0) / MIB),
    }


def of_points(folder: Path, words: Sequence[str], name: str) -> Table:
    """Return a table of benchmarks of models."""
    return FORMS[name].table(points(folder, words, name))


def operators(folder: Path, words: Sequence[str]) -> Iterator[Record]:
    """Yield a record for each measurement of an operator in a file, beside its baseline."""
    measured = [row for row in the_result(folder, words)["rows"] if "seconds" in row]
    cases: Dict[Any, Dict[str, Any]] = defaultdict(dict)
    for row in measured:
        cases[row["title"], str(row["shape"])][row["path"]] = row
    several = len({row["title"] for row in measured}) > 1
    for row in measured:
        own = cases[row["title"], str(row["shape"])]
        base, compiled = first(own, BASELINES), first(own, COMPILED)
        head = {"operator": f"{row['title']}: " if several else "", "way": FORMS["operator-shapes"].title(row["path"])}
        if base is not None:
            head.update(baseline=base["path"], share=row["memory_mib"] / max(base["memory_mib"], 1e-9))
        yield {**row, **row["shape"], **head, **timed(row, base), "chosen": compiled is row and base is not None}


def first(paths: Dict[str, Dict[str, Any]], names: Sequence[str]) -> Any:
    """Return the measurement of the first name that has one, or None."""
    return next((paths[name] for name in names if name in paths), None)


def operator_lengths(folder: Path, words: Sequence[str]) -> Table:
    """Return a row for each compiled operator: speed and memory by length, relative to its baseline."""
    return FORMS["operator-lengths"].table(record for record in operators(folder, words) if record["chosen"])


def operator_shapes(folder: Path, words: Sequence[str]) -> Table:
    """Return time, speed relative to the baseline and memory of each path, with a row for each shape."""
    found = list(operators(folder, words))
    ways = {record["path"]: record["way"] for record in found}
    return FORMS["operator-shapes"].table(found, [ways[path] for path in sorted(ways, key=by_kind)])


def planted_defects(folder: Path, words: Sequence[str]) -> Table:
    """Return a row for each operator: the defects planted in its kernels that the tests noticed."""
    (name,) = words
    found: Dict[str, Dict[str, Any]] = json.loads((folder / name).read_text(encoding="utf-8"))
    form = FORMS["planted-defects"]
    return form.table({**count, "title": form.title(operator)} for operator, count in found.items())


def classifier_speed(folder: Path, words: Sequence[str]) -> Table:
    """Return a row for each model of the benchmark ``lra-speed``: speed and memory, and the paper's."""
    result, form, paper = the_result(folder, words), FORMS["classifier-speed"], PAPER_TABLES["table2"]
    settings, titles = result["settings"], paper.speed.models if paper.speed else {}
    papers = {model: " / ".join(paper.rows[title][-2:]) for title, model in titles.items()}
    papers["transformer-explicit"] = papers.pop("transformer")  # the paper's has explicit attention weights
    found = []
    for model in settings["models"].split(","):
        scores = {
            key.rpartition(" ")[2]: score for key, score in result["scores"].items() if key.startswith(f"{model} ")
        }
        arch = settings.get("architectures", {}).get(model)  # older files do not record it
        title = form.title(model, settings["chunk"]) + (f" (`{arch}`)" if arch else "")
        rate = float(f"{settings['batch'] / scores['seconds']:.3g}")
        found.append({**scores, "title": title, "rate": rate, "paper": papers.get(model, "")})
    return form.table(found)


def contexts(folder: Path, words: Sequence[str]) -> Table:
    """Return the longest contexts of training steps in some memories, as ``fairseq-mega-inspect --memory`` does.

    Each word is ARCHITECTURE:SYMBOLS, or ARCHITECTURE:SYMBOLS:bf16 for autocast to bfloat16.
    """
    found = []
    for word in words:
        name, vocab_size, *precision = word.split(":")
        step = model_of(name, int(vocab_size), precision == ["bf16"]).step
        record = {"name": name, "precision": ", bfloat16" if precision else "", "vocab_size": int(vocab_size)}
        longest = {memory: step.context(memory * GIB) for memory in MEMORIES}
        found.append({**record, "state": step.state / GIB, "token": step.token / 1024, "contexts": longest})
    return FORMS["contexts"].table(found)


def count_parameters(words: str) -> int:
    """Return the parameters of an architecture: ``mega_wmt_en_de``, ``mega_wmt_en_de symbols=33000 encoder_layers=3``.

    Args:
        words: name of the architecture, then options that differ from it, as in recipes; ``symbols`` is the size of
            each dictionary, by default that of the architecture's recipes.

    Raises:
        ValueError: for an unknown architecture or option, or if the recipes have no or several dictionaries for the
            architecture and ``symbols`` is missing.
    """
    name, *settings = words.split()
    if name not in ARCH_MODEL_REGISTRY:
        raise ValueError("give the name of an architecture")
    options = {key: yaml.safe_load(value) for key, _, value in (setting.partition("=") for setting in settings)}
    vocab_size = options.pop("symbols", None) or vocab_size_of_preset(name)
    parser = argparse.ArgumentParser()
    ARCH_MODEL_REGISTRY[name].add_args(parser)
    unknown = set(options) - set(vars(parser.parse_args([])))
    if unknown:
        raise ValueError(f"{name} has no options {', '.join(sorted(unknown))}")
    if vocab_size is None and not issubclass(ARCH_MODEL_REGISTRY[name], ImageClassifier):
        raise ValueError("no recipe has this architecture, or several with different dictionaries: add symbols=NUMBER")
    return parameters(on_paper.built({"_name": name, **options}, vocab_size or BYTES))


TABLES: Dict[str, Callable[[Path, Sequence[str]], Table]] = {
    **{name: partial(of_points, name=name) for name, form in FORMS.items() if form.axis and name != "figure4"},
    "operator-lengths": operator_lengths,
    "operator-shapes": operator_shapes,
    "planted-defects": planted_defects,
    "classifier-speed": classifier_speed,
    "contexts": contexts,
}
