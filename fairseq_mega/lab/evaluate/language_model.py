"""Perplexity of a language model on a split, for one or many context lengths and chunk sizes, as result files.

A model of --task mega_language_modeling reads the split in K segments (--segments), each from an empty memory: the
context is the segment. --contexts sets the length of segments in tokens instead; segments end with lines. With
--exact-contexts segments end anywhere: multiples of the chunk then differ in the memory alone, because all chunks begin
at the same tokens. Any other language model of fairseq, for instance transformer_lm, reads blocks of its
--tokens-per-sample, whose first --context-window tokens are context only. Every token is scored once.
"""

import argparse
import logging
import shlex
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import torch

from fairseq_mega.cli.commands import exit_status
from fairseq_mega.lab.evaluate.lm_scores import Score, Setting, Sizes, describe, evaluate, load, logger
from fairseq_mega.lab.prepare.download import sha256_of
from fairseq_mega.lab.prepare.layouts import words_of
from fairseq_mega.lab.runs.results import make_result, read_result, write_result


def sources_of(options: argparse.Namespace) -> Dict[str, str]:
    """Return the SHA-256 of the files that a score depends on."""
    texts = [options.data / f"{options.subset}.{ending}" for ending in ("bin", "jsonl")]
    files = {"checkpoint_sha256": options.path, "text_sha256": next(filter(Path.is_file, texts), texts[0])}
    return {name: sha256_of(file) for name, file in files.items() if file.is_file()}  # loading names a missing file


def settings_of(options: argparse.Namespace) -> Iterator[Setting]:
    """Return every context of the command line with every chunk."""
    names = {"segments": "segments", "contexts": "context", "exact_contexts": "exact_context"}
    names["context_window"] = "context_window"
    for chunk_size in options.chunk_size or [None]:
        given = [{field: value} for name, field in names.items() for value in getattr(options, name) or []]
        yield from (Setting(**context, chunk_size=chunk_size) for context in given or [{}])


def numbers(text: str) -> List[int]:
    """Read whole numbers above 0, separated by commas."""
    found = [int(part) for part in text.split(",")]
    if min(found) < 1:
        raise ValueError
    return found


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


def settings_of_result(model: Any, task: Any, subset: str, setting: Setting, sizes: Sizes) -> Dict[str, Any]:
    """Collect the settings of a result that a score depends on, beside checksums and the training."""
    return {
        **{name: value for name, value in setting._asdict().items() if value is not None},
        "subset": subset,
        "chunk_nums": sizes.chunk_nums,
        "max_tokens": sizes.max_tokens,
        "threads": torch.get_num_threads(),
        "trained_chunk_or_block": getattr(task, "chunk_size", task.args.tokens_per_sample),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }


def scores_of(score: Score, words: Optional[int]) -> Dict[str, float]:
    """Return the scores of a result, with the perplexity per word if the text's words are counted."""
    scores = {
        "perplexity": 2**score.bits,
        "bits_per_token": score.bits,
        "tokens_per_second": score.tokens / score.seconds,
    }
    return {**scores, **({"word_perplexity": 2 ** (score.bits * score.tokens / words)} if words else {})}


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="evaluate_lm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("data", type=Path, help="data folder, made by fairseq-preprocess")
    add("--path", type=Path, required=True, help="checkpoint")
    add("--subset", default="test", help="split to score (default: test)")
    add(
        "--segments",
        type=numbers,
        help="number of segments K, or several, comma separated (default: that of the training)",
    )
    add("--contexts", type=numbers, help="maximum tokens of a segment, or several numbers")
    add("--exact-contexts", type=numbers, help="exact tokens of a segment, which ends anywhere, or several numbers")
    add("--chunk-size", type=numbers, help="attention chunk, or several (default: that of the training)")
    add(
        "--context-window",
        type=numbers,
        help="for models without memory: tokens of a block that are context only, or several numbers",
    )
    add("--chunk-nums", type=int, default=2, help="chunks that one call reads (default: 2)")
    add("--max-tokens", type=int, default=36000, help="tokens per call, of segments side by side (default: 36000)")
    add(
        "--softmax-batch",
        type=int,
        default=1024,
        help="positions whose softmax is computed at once (default: 1024)",
    )
    add("--device", choices=["cpu", "cuda"], help="device (default: cuda where there is a GPU)")
    add("--benchmark", default="language-modeling", help="name in the result files")
    add("--label", required=True, help="name of the model in the result files")
    add(
        "--output",
        type=Path,
        required=True,
        help="folder of the result files, one per setting; settings with a file are skipped",
    )
    return parser


def run(options: argparse.Namespace, command: str) -> None:
    """Write a result file for each setting without one."""
    options.output.mkdir(parents=True, exist_ok=True)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    sizes = Sizes(options.chunk_nums, options.max_tokens, options.softmax_batch)
    sources = sources_of(options)
    words = words_of(options.data, options.subset)
    loaded: Tuple[Any, Any, Any, Dict[str, Any]] = (object(), None, None, {})
    for setting in settings_of(options):
        file = file_of(options.output, options.label, options.subset, setting)
        if file.exists():
            check_same(file, sources)
            logger.info(f"{file} exists, skipped")
            continue
        if loaded[0] != setting.chunk_size:
            loaded = (setting.chunk_size, *load(options.path, options.data, setting.chunk_size, device))
        _, model, task, training = loaded
        score = evaluate(model, task, options.subset, setting, sizes)
        logger.info(f"{file.stem}: {describe(score)}")
        settings = settings_of_result(model, task, options.subset, setting, sizes)
        settings.update(mean_segment=score.mean_segment, longest_segment=score.longest_segment, **sources, **training)
        settings.update({"words": words} if words else {})
        seed, scores = settings.pop("seed"), scores_of(score, words)
        result = make_result(options.benchmark, options.label, scores, score.tokens, command, seed, settings)
        write_result(file, result)


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; return its exit status."""
    options = build_parser().parse_args(arguments)
    logging.basicConfig(format="%(asctime)s | %(name)s | %(message)s", datefmt="%H:%M:%S", level=logging.INFO)
    library = logging.getLogger("fairseq")
    level = library.level
    library.setLevel(logging.WARNING)
    given = sys.argv[1:] if arguments is None else arguments
    try:
        command = shlex.join(["python", "-m", "fairseq_mega.lab.evaluate.language_model", *map(str, given)])
        return exit_status("evaluate_lm", lambda: run(options, command))
    finally:
        library.setLevel(level)


if __name__ == "__main__":
    sys.exit(main())
