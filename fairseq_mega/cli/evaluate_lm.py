"""Perplexity of a language model on a split, for one or many context lengths and chunk sizes, as result files.

A model of --task mega_language_modeling reads the split in K segments (--segments), each from an empty memory: the
context is the segment. --contexts gives their lengths in tokens instead; they end with lines. --exact-contexts lets
them end anywhere: multiples of the chunk then differ in nothing but the memory, as all chunks begin at the same tokens.
Any other language model of fairseq (the Transformer beside it) reads blocks of its --tokens-per-sample, of which the
first --context-window tokens are context only. Every token is scored once.
"""

import argparse
import logging
import math
import shlex
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from fairseq import checkpoint_utils, utils
from fairseq.models import FairseqLanguageModel
from torch import Tensor

from fairseq_mega.compat import architectures
from fairseq_mega.corpora.checksums import sha256_of
from fairseq_mega.criterions.adaptive_loss import adaptive_nll
from fairseq_mega.data.streamed_segments import StreamedSegmentDataset
from fairseq_mega.reports.results import make_result, read_result, write_result
from fairseq_mega.tasks.mega_language_modeling import MegaLanguageModelingTask

logger = logging.getLogger("evaluate_lm")


class Setting(NamedTuple):
    """What one evaluation varies; None: as the model was trained, or not applicable."""

    segments: Optional[int]
    context: Optional[int]  # tokens of a segment
    chunk_size: Optional[int]
    context_window: Optional[int]
    exact_context: Optional[int] = None


class Score(NamedTuple):
    """What one evaluation found."""

    tokens: int
    bits: float  # per token
    seconds: float
    mean_segment: Optional[float]  # tokens
    longest_segment: Optional[int]


def negative_log_likelihood(model: Any, features: Tensor, target: Tensor, pad: int, positions: int) -> float:
    """Sum of -log p(target), natural logarithm.

    Args:
        model: a language model of fairseq.
        features: (B, L, d), what its output layer takes.
        target: (B, L) long; ``pad`` is not scored.
        positions: whose logits are in memory at once.
    """
    adaptive = getattr(model.decoder, "adaptive_softmax", None)
    total = 0.0
    pieces = zip(features.flatten(0, 1).split(positions), target.flatten().split(positions))
    for some, expected in pieces:
        if adaptive is not None:
            total += float(adaptive_nll(adaptive, some, expected, pad))
        else:
            logits = model.output_layer(some).float()
            total += float(F.cross_entropy(logits, expected, ignore_index=pad, reduction="sum"))
    return total


def score_batches(model: Any, batches: Any, pad: int, positions: int, seconds: float = 10.0) -> Tuple[int, float]:
    """Number of tokens that the batches score, and the sum of their negative log likelihoods; says how far it is."""
    device = next(model.parameters()).device
    tokens, total, last = 0, 0.0, time.monotonic()
    for number, sample in enumerate(batches, 1):
        sample = utils.move_to_cuda(sample, device) if device.type == "cuda" else sample
        target = sample["target"].clone()
        for row, start in enumerate(sample.get("start_indices", [])):
            target[row, :start] = pad  # context only
        features, _ = model(**sample["net_input"], features_only=True)
        total += negative_log_likelihood(model, features, target, pad, positions)
        tokens += int(target.ne(pad).sum())
        if time.monotonic() - last > seconds:
            last = time.monotonic()
            logger.info(
                f"{number} of {len(batches)} batches, {tokens:,} tokens, {total / math.log(2) / tokens:.4f} bits"
            )
    return tokens, total


def training_of(state: Dict[str, Any]) -> Dict[str, Any]:
    """Seed and updates of the training that a checkpoint comes from; None where it does not say."""
    cfg, history = state.get("cfg"), state.get("optimizer_history") or [{}]
    seed = cfg["common"]["seed"] if cfg else getattr(state["args"], "seed", None)
    most = cfg["optimization"]["max_update"] if cfg else getattr(state["args"], "max_update", None)
    return {"seed": seed, "updates": history[-1].get("num_updates"), "max_update": most}


def sources_of(options: argparse.Namespace) -> Dict[str, str]:
    """SHA-256 of all that a score comes from, beside its setting."""
    files = {"checkpoint_sha256": options.path, "text_sha256": options.data / f"{options.subset}.bin"}
    return {name: sha256_of(file) for name, file in files.items() if file.is_file()}  # loading says what is missing


def check_same(file: Path, sources: Dict[str, str]) -> None:
    """Raise a ValueError unless a result file that is there already was measured on the same files."""
    settings = read_result(file)["settings"]
    for name, digest in sources.items():
        if settings.get(name) != digest:
            what = "checkpoint" if name == "checkpoint_sha256" else "text"
            raise ValueError(
                f"{file} was measured on another {what}, or by an older version: give another --label or --output, or "
                "remove it"
            )


def load(path: Path, data: Path, chunk_size: Optional[int], device: torch.device) -> Tuple[Any, Any, Dict[str, Any]]:
    """Model and task of a checkpoint, on the data folder that is given, and what :func:`training_of` says.

    Raises:
        OSError: if a file is missing.
        ValueError: if it is no checkpoint of a language model, or holds more than tensors and plain values.
    """
    overrides: Dict[str, Any] = {"data": str(data)}
    if chunk_size is not None:
        overrides["test_chunk_size"] = chunk_size
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path), overrides)
    with architectures.expect_models_of(FairseqLanguageModel):
        (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], state=state)
    if chunk_size is not None and not isinstance(task, MegaLanguageModelingTask):
        raise ValueError(f"--chunk-size {chunk_size}: {path} is no model of --task mega_language_modeling")
    model.to(device).eval()
    return model, task, training_of(state)


def evaluate(model: Any, task: Any, subset: str, setting: Setting, options: argparse.Namespace) -> Score:
    """Score a split.

    Raises:
        ValueError: where a setting is not for this kind of model.
        RuntimeError: if the tokens scored are not those of the split.
    """
    window = setting.context_window or 0
    if isinstance(task, MegaLanguageModelingTask):
        task.segments, task.args.chunk_nums = setting.segments or task.segments, options.chunk_nums
        task.exact_context = setting.exact_context
        if setting.context is not None:
            task.load_dataset(subset)
            task.segments = math.ceil(task.dataset(subset).text.tokens / setting.context)
    elif (setting.segments, setting.context, setting.exact_context) != (None, None, None):
        raise ValueError(
            "--segments, --contexts, --exact-contexts: this model carries no memory along; give --context-window"
        )
    elif window >= task.args.tokens_per_sample:
        raise ValueError(f"--context-window {window}: blocks have {task.args.tokens_per_sample} tokens; give fewer")
    else:
        block = task.args.tokens_per_sample
        task.args.tokens_per_sample = block - window
    try:
        task.load_dataset(subset)
        dataset = task.dataset(subset)
        batches = task.eval_lm_dataloader(
            dataset=dataset,
            max_tokens=options.max_tokens,
            batch_size=None,
            max_positions=None,
            num_workers=0,
            data_buffer_size=0,
            context_window=window,
        )
    finally:
        if not isinstance(task, MegaLanguageModelingTask):
            task.args.tokens_per_sample = block
    begun = time.perf_counter()
    with torch.no_grad():
        tokens, total = score_batches(model, batches, task.target_dictionary.pad(), options.softmax_batch)
    seconds = time.perf_counter() - begun
    streams = isinstance(dataset, StreamedSegmentDataset)
    expected = dataset.text.tokens if streams else int(np.sum(dataset.sizes, dtype=np.int64))
    if tokens != expected:
        raise RuntimeError(f"{tokens:,} of {expected:,} tokens of {subset!r} were scored")
    lengths = dataset.segments[:, 1] - dataset.segments[:, 0] if streams else None
    bits = total / math.log(2) / tokens
    if not math.isfinite(bits):
        raise RuntimeError(f"the loss on {subset!r} is {bits}: the model's weights are broken")
    return Score(
        tokens,
        bits,
        seconds,
        None if lengths is None else float(lengths.mean()),
        None if lengths is None else int(lengths.max()),
    )


def settings_of(options: argparse.Namespace) -> Iterable[Setting]:
    """Every context of the command line with every chunk."""
    for chunk_size in options.chunk_size or [None]:
        for segments in options.segments or []:
            yield Setting(segments, None, chunk_size, None)
        for context in options.contexts or []:
            yield Setting(None, context, chunk_size, None)
        for context in options.exact_contexts or []:
            yield Setting(None, None, chunk_size, None, context)
        for window in options.context_window or []:
            yield Setting(None, None, chunk_size, window)
        if not (options.segments or options.contexts or options.exact_contexts or options.context_window):
            yield Setting(None, None, chunk_size, None)


def numbers(text: str) -> List[int]:
    """Positive numbers, comma separated."""
    try:
        found = [int(part) for part in text.split(",")]
    except ValueError:
        found = [0]
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"'{text}': give whole numbers above 0, separated by commas")
    return found


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = argparse.ArgumentParser(
        prog="evaluate_lm", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("data", type=Path, help="folder of fairseq-preprocess")
    add("--path", type=Path, required=True, help="checkpoint")
    add("--subset", default="test", help="split to score (default: test)")
    add("--segments", type=numbers, help="K, or several, comma separated (default: that of the training)")
    add("--contexts", type=numbers, help="tokens of a segment at most, or several")
    add("--exact-contexts", type=numbers, help="tokens of a segment exactly, which ends anywhere, or several")
    add("--chunk-size", type=numbers, help="attention chunk, or several (default: as trained)")
    add("--context-window", type=numbers, help="for models without memory: tokens of context only, or several")
    add("--chunk-nums", type=int, default=2, help="chunks that one call reads (default: 2)")
    add("--max-tokens", type=int, default=36000, help="tokens per call, of segments side by side (default: 36000)")
    add("--softmax-batch", type=int, default=1024, help="positions whose softmax is in memory at once (default: 1024)")
    add("--device", choices=["cpu", "cuda"], help="default: cuda where there is a GPU")
    add("--benchmark", default="language-modeling", help="name in the result files")
    add("--label", required=True, help="name of the model in the result files")
    add("--output", type=Path, required=True, help="folder for one result file per setting; those there are skipped")
    return parser


def describe(score: Score) -> str:
    """One line about a score."""
    rate = f"{score.tokens / score.seconds:,.0f} tokens/s"
    return f"{score.tokens:,} tokens, perplexity {2**score.bits:.2f}, {score.bits:.4f} bits per token, {rate}"


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; return its exit status."""
    options = build_parser().parse_args(arguments)
    logging.basicConfig(format="%(asctime)s | %(name)s | %(message)s", datefmt="%H:%M:%S", level=logging.INFO)
    library = logging.getLogger("fairseq")
    level = library.level
    library.setLevel(logging.WARNING)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    options.output.mkdir(parents=True, exist_ok=True)
    given = sys.argv[1:] if arguments is None else arguments
    command = shlex.join(["python", "-m", "fairseq_mega.cli.evaluate_lm", *map(str, given)])
    loaded: Tuple[Any, Any, Any, Dict[str, Any]] = (object(), None, None, {})
    try:
        sources = sources_of(options)
        for setting in settings_of(options):
            parts = [f"{name}{value}" for name, value in zip(("k", "t", "c", "w", "x"), setting) if value is not None]
            file = options.output / ("-".join([options.label, options.subset, *parts]) + ".json")
            if file.exists():
                check_same(file, sources)
                logger.info(f"{file} is there already, skipped")
                continue
            if loaded[0] != setting.chunk_size:
                loaded = (setting.chunk_size, *load(options.path, options.data, setting.chunk_size, device))
            _, model, task, training = loaded
            score = evaluate(model, task, options.subset, setting, options)
            logger.info(f"{file.stem}: {describe(score)}")
            write(file, setting, score, model, task, options, command, {**sources, **training})
    except (OSError, ValueError) as error:
        print(f"evaluate_lm: error: {error}", file=sys.stderr)
        return 1
    finally:
        library.setLevel(level)
    return 0


def write(
    file: Path,
    setting: Setting,
    score: Score,
    model: Any,
    task: Any,
    options: argparse.Namespace,
    command: str,
    origin: Dict[str, Any],
) -> None:
    """Write a result file, complete or not at all; ``origin`` says what was scored, and how it was trained."""
    settings = {
        **{name: value for name, value in setting._asdict().items() if value is not None},
        "subset": options.subset,
        "chunk_nums": options.chunk_nums,
        "max_tokens": options.max_tokens,
        "threads": torch.get_num_threads(),
        "mean_segment": score.mean_segment,
        "longest_segment": score.longest_segment,
        "trained_chunk_or_block": getattr(task, "chunk_size", task.args.tokens_per_sample),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        **origin,
    }
    seed = settings.pop("seed")
    scores = {
        "perplexity": 2**score.bits,
        "bits_per_token": score.bits,
        "tokens_per_second": score.tokens / score.seconds,
    }
    result = make_result(options.benchmark, options.label, scores, score.tokens, command, seed, settings)
    write_result(file, result)


if __name__ == "__main__":
    sys.exit(main())
