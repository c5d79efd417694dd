"""Tables of speed, memory and size for the documents, from result files of the benchmarks or from models on paper.

A table is a function of the document's folder and of the words behind its name in the marker, mostly result files.
"""

import argparse
import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Sequence, Set, Tuple

import yaml
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_mega.lab.benchmarks.kernels_report import BASELINES, COMPILED, by_kind
from fairseq_mega.lab.inspect.memory import model_of
from fairseq_mega.lab.inspect.recipe_models import BYTES, vocab_size_of_preset
from fairseq_mega.lab.report.numbers import MIB, amount, by_subject, mebibytes, pivot, points_of, ratio, timed
from fairseq_mega.lab.report.papers import PAPER_TABLES
from fairseq_mega.lab.runs.results import Result, read_result
from fairseq_mega.lab.runs.text_tables import Table, table_of
from fairseq_mega.models import on_paper
from fairseq_mega.models.cost import GIB, parameters
from fairseq_mega.models.image_classifier import ImageClassifier

LAYERS = {
    "transformer": "Transformer",
    "explicit-transformer": "Transformer, attention written out",
    "mega": "MEGA, full attention",
    "mega-chunk": "MEGA, chunks of {chunk}",
    "published-chunk": "MEGA, chunks of {chunk}, as published",
    "megalodon-chunk": "MEGALODON, chunks of {chunk}",
    "megalodon-published": "MEGALODON, chunks of {chunk}, as published",
}
CLASSIFIERS = {
    "transformer-explicit": "Transformer, attention written out",
    "transformer": "Transformer, fused attention",
    "mega": "MEGA, full attention",
    "mega-chunk": "MEGA-chunk, C = {chunk}",
}
LANGUAGE_MODELS = {
    "mega": "MEGA",
    "mega-full": "MEGA, full attention",
    "mega-bf16": "MEGA, matrices in bfloat16",
    "mega-int8": "MEGA, matrices in int8",
    "transformer": "Transformer",
    "llama": "Llama-style Transformer",
    "megalodon": "MEGALODON",
    "megalodon-bf16": "MEGALODON, matrices in bfloat16",
    "megalodon-int8": "MEGALODON, matrices in int8",
}
PEERS = {
    "megalodon-jax": "MEGALODON, megalodon-jax",
    "megalodon-published": "MEGALODON, ours in the published arrangement",
    "transformers": "MEGA-chunk, transformers",
    "mega-published": "MEGA-chunk, ours in the published arrangement",
    "mega-pytorch": "MEGA, full attention, mega-pytorch",
}
PRECISIONS = {
    "float32": "float32",
    "autocast": "bfloat16 under autocast",
    "bfloat16": "bfloat16 throughout",
    "float16": "float16 throughout",
}
PATHS = {
    "fft": "torch FFT",
    "torch_fft": "torch FFT",
    "fft_kernel": "our FFT",
    "DxNxL": "D x N x L, as published",
}
PLANTED = {"ema": "EMA scan", "fft_conv": "FFT convolution", "gate": "update gate", "timestep_norm": "timestep norm"}
MEMORIES = (16, 24, 40, 80)  # GiB


def titled(titles: Mapping[str, str], model: str, chunk: Any = "") -> str:
    """Return a model in words; an unknown model keeps its name, for instance "mega, chunk 64"."""
    name, comma, rest = model.partition(", ")
    return titles.get(name, name).format(chunk=chunk) + comma + rest


def the_result(folder: Path, words: Sequence[str]) -> Result:
    """Return the result of the one file that the words name."""
    (name,) = words
    return read_result(folder / name)


def layer_lengths(folder: Path, words: Sequence[str]) -> Table:
    """Return a row for each length of a benchmark of layers, with the speed relative to the first model."""
    result = the_result(folder, words)
    found = by_subject(result["scores"], "L")
    names = {model: titled(LAYERS, model, result["settings"]["chunk_size"]) for model in found}
    base, cells = next(iter(found.values())), []
    for length in points_of(found):
        memory = [f"{own[length]['memory_mib']:.0f}" if length in own else "-" for own in found.values()]
        head = {"L": f"{length:,}", "peak memory, MiB, in this order": " / ".join(memory)}
        cells += [(head, names[m], timed(own[length], base.get(length))) for m, own in found.items() if length in own]
    return pivot(cells, names.values(), missing="-", last=1)


def layer_precisions(folder: Path, words: Sequence[str]) -> Table:
    """Return a row for each model, and a column for each length of several files, whose precisions differ."""
    cells: List[Tuple[str, str, str]] = []
    chunks: Dict[str, Set[int]] = {}
    for name in words:
        result = read_result(folder / name)
        settings, found = result["settings"], by_subject(result["scores"], "L")
        precision = PRECISIONS.get(settings.get("dtype", "float32"), settings.get("dtype", ""))
        for length in points_of(found):
            column = f"[L = {length:,}, d = {settings['embed_dim']}, {precision}]({name})"
            for model, points in found.items():
                chunks.setdefault(model, set()).add(settings["chunk_size"])
                if length in points:
                    cells.append((model, column, f"{timed(points[length])}, {mebibytes(points[length]['memory_mib'])}"))
    words_of = {model: " or ".join(f"{size:,}" for size in sorted(sizes)) for model, sizes in chunks.items()}
    return pivot(({"": titled(LAYERS, model, words_of[model])}, column, text) for model, column, text in cells)


def measured(folder: Path, words: Sequence[str], *keys: str) -> Dict[Tuple[Any, ...], Dict[str, Dict[str, Any]]]:
    """Return the measurements of operators in a file by entries of a row or of its shape, then by path."""
    found: Dict[Tuple[Any, ...], Dict[str, Dict[str, Any]]] = {}
    for row in the_result(folder, words)["rows"]:
        if "seconds" in row:
            key = tuple(row[key] if key in row else row["shape"][key] for key in keys)
            found.setdefault(key, {})[row["path"]] = row
    return found


def first(paths: Dict[str, Dict[str, Any]], names: Sequence[str]) -> Any:
    """Return the measurement of the first name that has one, or None."""
    return next((paths[name] for name in names if name in paths), None)


def operator_lengths(folder: Path, words: Sequence[str]) -> Table:
    """Return a row for each compiled operator: speed by length, and memory, relative to its baseline."""
    found = measured(folder, words, "title", "length")
    lengths = sorted({length for _, length in found})
    rows = []
    for title in dict.fromkeys(title for title, _ in found):
        paths = {length: found.get((title, length), {}) for length in lengths}
        pairs = {length: (first(own, COMPILED), first(own, BASELINES)) for length, own in paths.items()}
        both = {length: pair for length, pair in pairs.items() if None not in pair}
        if both:
            speeds = {length: ratio(base["seconds"] / fast["seconds"]) for length, (fast, base) in both.items()}
            shares = [fast["memory_mib"] / max(base["memory_mib"], 1e-9) for fast, base in both.values()]
            fast, base = both[max(both)]
            rows.append(
                {
                    "forward and backward": f"{title}: {fast['path']} against {base['path']}",
                    **{f"L = {length:,}": speeds.get(length, "") for length in lengths},
                    "memory": f"{min(shares):.2f} to {max(shares):.2f}",
                }
            )
    return table_of(rows)


def operator_shapes(folder: Path, words: Sequence[str]) -> Table:
    """Return time, speed relative to the baseline and memory of each path, with a row for each shape."""
    found = measured(folder, words, "title", "batch", "width", "n", "length")
    names = sorted(dict.fromkeys(name for paths in found.values() for name in paths), key=by_kind)
    several = len({title for title, *_ in found}) > 1
    cells = []
    for (title, *shape), paths in found.items():
        sizes = ", ".join(f"{size:,}" for size in shape)
        head = {"B, D, N, L": f"{title}: {sizes}" if several else sizes}
        for name, one in paths.items():
            text = f"{timed(one, first(paths, BASELINES))}, {mebibytes(one['memory_mib'])}"
            cells.append((head, PATHS.get(name, name), text))
    return pivot(cells, [PATHS.get(name, name) for name in names])


def planted_defects(folder: Path, words: Sequence[str]) -> Table:
    """Return a row for each operator: the defects planted in its kernels that the tests noticed."""
    (name,) = words
    found: Dict[str, Dict[str, Any]] = json.loads((folder / name).read_text(encoding="utf-8"))
    return table_of(
        [
            {
                "operator": PLANTED.get(operator, operator),
                "noticed of those tried": f"{count['noticed']} of {count['tried']}",
                "of all": str(count["planted"]),
            }
            for operator, count in found.items()
        ]
    )


def decoding(folder: Path, words: Sequence[str]) -> Table:
    """Return a row for each model of several files: time of a step, and speed relative to the Transformer."""
    cells, positions = [], set()
    for name in words:
        result = read_result(folder / name)
        found, texts = by_subject(result["scores"], "position"), result["settings"].get("batch", 1)
        positions.update(points_of(found))
        for model, points in found.items():
            end = points[max(points)]
            head = {
                "a step of": (f"{texts} texts: " if texts > 1 else "") + titled(LANGUAGE_MODELS, model),
                "parameters of the layers": f"{end['parameters']:,.0f}",
                "memory of the past": mebibytes(end["bytes"] / MIB),
            }
            base = found.get("transformer", {})
            cells += [(head, f"at {at:,}", timed(point, base.get(at))) for at, point in points.items()]
    return pivot(cells, [f"at {at:,}" for at in sorted(positions)], last=1)


def training_lengths(folder: Path, words: Sequence[str]) -> Table:
    """Return a row for each length: speed and memory of training each language model, and the first two's ratio."""
    found = by_subject(the_result(folder, words)["scores"], "L")
    columns, rows = ["L"], []
    for model in found:
        columns += [f"{titled(LANGUAGE_MODELS, model)}, tokens/s", "microseconds per token", "peak MiB"]
    for length in points_of(found):
        row, points = [f"{length:,}"], [own.get(length) for own in found.values()]
        for point in points:
            if point is None:
                row += ["omitted", "", ""]
            else:
                speed, time = length / point["seconds"], 1e6 * point["seconds"] / length
                row += [f"{speed:,.0f}", amount(time), f"{point['memory_mib']:,.0f}"]
        first, second = [*points, None][:2]
        rows.append([*row, ratio(second["seconds"] / first["seconds"]) if first and second else ""])
    return Table([*columns, "ratio"], rows)


def peers(folder: Path, words: Sequence[str]) -> Table:
    """Return a row for each shape of other implementations in several files, beside our speed and memory."""
    rows = []
    for file in words:
        for subject, points in by_subject(read_result(folder / file)["scores"], "L").items():
            name, _, batch = subject.partition(", batch ")
            for length, point in points.items():
                if "speed" not in point:  # ours
                    continue
                tokens, speed, memory = int(batch) * length, point["speed"], point["memory"]
                rows.append(
                    {
                        "beside": PEERS.get(name, name),
                        "batch x L": f"{batch} x {length:,}",
                        "its parameters": f"{point['parameters']:,.0f}",
                        "ours, tokens/s": f"{tokens * speed / point['seconds']:,.0f}",
                        "its": f"{tokens / point['seconds']:,.0f}",
                        "speed": ratio(speed),
                        "ours, peak MiB": f"{point['memory_mib'] * memory:,.0f}",
                        "its peak": f"{point['memory_mib']:,.0f}",
                        "memory": ratio(memory),
                    }
                )
    names = list(dict.fromkeys(row["beside"] for row in rows))
    return table_of(sorted(rows, key=lambda row: names.index(row["beside"])))


def classifier_speed(folder: Path, words: Sequence[str]) -> Table:
    """Return a row for each model of the benchmark ``lra-speed``: speed and memory, and the paper's."""
    result = the_result(folder, words)
    scores, settings = result["scores"], result["settings"]
    paper = PAPER_TABLES["table2"]
    titles = paper.speed.models if paper.speed else {}
    papers = {model: " / ".join(paper.rows[title][-2:]) for title, model in titles.items()}
    papers["transformer-explicit"] = papers.pop("transformer")  # the paper's has explicit attention weights
    rows = []
    for model in settings["models"].split(","):
        arch = settings.get("architectures", {}).get(model)  # older files do not record it
        rows.append(
            {
                "model": titled(CLASSIFIERS, model, settings["chunk"]) + (f" (`{arch}`)" if arch else ""),
                "parameters": f"{scores[f'{model} parameters']:,.0f}",
                "texts/s": amount(settings["batch"] / scores[f"{model} seconds"]),
                "peak MiB": f"{scores[f'{model} memory_mib']:,.0f}",
                "speed / memory": f"{scores[f'{model} speed']:.2f}x / {scores[f'{model} memory']:.2f}x",
                "in the paper's Table 2": papers.get(model, ""),
            }
        )
    return table_of(rows)


def contexts(folder: Path, words: Sequence[str]) -> Table:
    """Return the longest contexts of training steps in some memories, as ``fairseq-mega-inspect --memory`` does.

    Each word is ARCHITECTURE:SYMBOLS, or ARCHITECTURE:SYMBOLS:bf16 for autocast to bfloat16.
    """
    rows = []
    for word in words:
        name, vocab_size, *precision = word.split(":")
        step = model_of(name, int(vocab_size), precision == ["bf16"]).step
        rows.append(
            {
                "`--arch`": f"`{name}`" + (", bfloat16" if precision else ""),
                "vocabulary": f"{int(vocab_size):,}",
                "training state": f"{step.state / GIB:.1f} GiB",
                "per token": f"{step.token / 1024:,.0f} KiB",
                **{f"{memory} GiB": f"{step.context(memory * GIB):,}" for memory in MEMORIES},
            }
        )
    return table_of(rows)


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
    "layer-lengths": layer_lengths,
    "layer-precisions": layer_precisions,
    "operator-lengths": operator_lengths,
    "operator-shapes": operator_shapes,
    "planted-defects": planted_defects,
    "decoding": decoding,
    "training-lengths": training_lengths,
    "peers": peers,
    "classifier-speed": classifier_speed,
    "contexts": contexts,
}
