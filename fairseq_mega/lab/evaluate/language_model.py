"""Perplexity of a language model on a split, for one or many context lengths and chunk sizes, as result files.

A model of --task mega_language_modeling reads the split in K segments (--segments), each from an empty memory: the
context is the segment. --contexts sets the length of segments in tokens instead; segments end with lines. With
--exact-contexts segments end anywhere: multiples of the chunk then differ in the memory alone, because all chunks begin
at the same tokens. Any other language model of fairseq, for instance transformer_lm, reads blocks of its
--tokens-per-sample, whose first --context-window tokens are context only. Every token is scored once.
"""

import argparse
import math
import shlex
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from fairseq import checkpoint_utils, utils
from fairseq.models import FairseqLanguageModel
from torch import Tensor

from fairseq_mega.cli.commands import exit_status
from fairseq_mega.compat import checks
from fairseq_mega.compat.features import precision
from fairseq_mega.criterions.adaptive_loss import adaptive_nll
from fairseq_mega.data.streamed_segments import StreamedSegmentDataset
from fairseq_mega.lab.prepare.download import sha256_of
from fairseq_mega.lab.prepare.layouts import words_of
from fairseq_mega.lab.prepare.progress import print_line
from fairseq_mega.lab.runs.results import make_result, read_result, write_result
from fairseq_mega.modules.llama_layer import LlamaLayer
from fairseq_mega.tasks.mega_language_modeling import MegaLanguageModelingTask

INTERVAL = 10.0  # seconds between lines on the progress
Setting = Dict[str, int]  # what differs between evaluations; without an entry: as the model was trained
LETTERS = {
    "segments": "k",
    "context": "t",
    "chunk_size": "c",
    "context_window": "w",
    "exact_context": "x",
    "attention_window": "a",
}


def training_of(state: Dict[str, Any]) -> Dict[str, Any]:
    """Return seed, updates and precision of a checkpoint's training; None if not recorded."""
    cfg, history = state.get("cfg"), state.get("optimizer_history") or [{}]
    common = cfg["common"] if cfg else vars(state["args"])
    most = cfg["optimization"]["max_update"] if cfg else common.get("max_update")
    updates = history[-1].get("num_updates")
    return {"seed": common.get("seed"), "updates": updates, "max_update": most, "precision": precision.of(common)}


def load(path: Path, data: Path, setting: Setting, device: torch.device) -> Tuple[Any, Any, Dict[str, Any]]:
    """Load model and task of a checkpoint for a data folder; return them with the result of :func:`training_of`.

    Chunk and window of attention are those of the setting, if it has any.

    Raises:
        OSError: if a file is missing.
        ValueError: if the file is not a checkpoint of a language model, or contains more than tensors and plain values.
    """
    state = checkpoint_utils.load_checkpoint_to_cpu(str(path), {"data": str(data)})
    chunk_size, window = setting.get("chunk_size"), setting.get("attention_window")
    if chunk_size is not None:
        if "test_chunk_size" not in (getattr(state.get("cfg"), "task", None) or ()):
            raise ValueError(
                f"--chunk-size {chunk_size}: {path} has no --task mega_language_modeling; omit --chunk-size"
            )
        state["cfg"].task.test_chunk_size = chunk_size
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(path)], state=state)
    checks.require_models([model], FairseqLanguageModel)
    if window is not None:
        layers = [module for module in model.modules() if isinstance(module, LlamaLayer)]
        if not layers:
            raise ValueError(f"--attention-window {window}: {path} is not of --arch llama_lm; omit --attention-window")
        for layer in layers:
            layer.window = window
    model.to(device).eval()
    return model, task, training_of(state)


def negative_log_likelihood(model: Any, features: Tensor, target: Tensor, pad: int, positions: int) -> float:
    """Sum of -log p(target), natural logarithm.

    Args:
        model: a language model of fairseq.
        features: (B, L, d), the input of its output layer.
        target: (B, L) long; ``pad`` is not scored.
        positions: number of positions whose logits are in memory at once.
    """
    adaptive = getattr(model.decoder, "adaptive_softmax", None)
    total = 0.0
    for some, expected in zip(features.flatten(0, 1).split(positions), target.flatten().split(positions)):
        if adaptive is not None:
            total += float(adaptive_nll(adaptive, some, expected, pad))
        else:
            logits = model.output_layer(some).float()
            total += float(F.cross_entropy(logits, expected, ignore_index=pad, reduction="sum"))
    return total


@torch.no_grad()
def score_batches(model: Any, batches: Any, pad: int, positions: int) -> Tuple[int, float]:
    """Return the number of scored tokens and the sum of their negative log likelihoods; print the progress."""
    device = next(model.parameters()).device
    tokens, total, last = 0, 0.0, time.monotonic()
    for number, sample in enumerate(batches, 1):
        sample = utils.move_to_cuda(sample, device) if device.type == "cuda" else sample
        target = sample["target"]  # padding where a token is context only
        features, _ = model(**sample["net_input"], features_only=True)
        total += negative_log_likelihood(model, features, target, pad, positions)
        tokens += int(target.ne(pad).sum())
        if time.monotonic() - last > INTERVAL:
            last, bits = time.monotonic(), total / math.log(2) / tokens
            print_line(f"{number} of {len(batches)} batches, {tokens:,} tokens, {bits:.4f} bits")
    return tokens, total


def load_split(task: Any, setting: Setting, options: argparse.Namespace) -> Any:
    """Return the split of the command line in the segments or blocks of a setting, and its batches.

    Raises:
        ValueError: if the setting is not for this kind of model.
    """
    window, block = setting.get("context_window", 0), task.args.tokens_per_sample
    if isinstance(task, MegaLanguageModelingTask):
        task.segments, task.args.chunk_nums = setting.get("segments", task.segments), options.chunk_nums
        task.exact_context = setting.get("exact_context")
        if "context" in setting:
            task.load_dataset(options.subset)
            task.segments = math.ceil(task.dataset(options.subset).text.tokens / setting["context"])
    elif not {"segments", "context", "exact_context"}.isdisjoint(setting):
        raise ValueError("--segments, --contexts, --exact-contexts: this model has no memory; give --context-window")
    elif window >= block:
        raise ValueError(f"--context-window {window}: blocks have {block} tokens; give fewer")
    else:
        task.args.tokens_per_sample = block - window  # with room for the window
    task.load_dataset(options.subset)
    dataset = task.dataset(options.subset)
    reading = {"max_tokens": options.max_tokens, "context_window": window, "num_workers": 0, "data_buffer_size": 0}
    batches = task.eval_lm_dataloader(dataset=dataset, batch_size=None, max_positions=None, **reading)
    task.args.tokens_per_sample = block  # as the next setting expects it
    return dataset, batches


def evaluate(model: Any, task: Any, setting: Setting, options: argparse.Namespace) -> Tuple[int, float, Dict[str, Any]]:
    """Return the number of tokens of a split, their bits, and the settings that only the data determine.

    Raises:
        ValueError: as :func:`load_split`.
        RuntimeError: if the scored tokens are not the split's.
    """
    dataset, batches = load_split(task, setting, options)
    tokens, total = score_batches(model, batches, task.target_dictionary.pad(), options.softmax_batch)
    streams = isinstance(dataset, StreamedSegmentDataset)
    expected = dataset.text.tokens if streams else int(np.sum(dataset.sizes, dtype=np.int64))
    if tokens != expected:
        raise RuntimeError(f"{tokens:,} of {expected:,} tokens of {options.subset!r} were scored")
    bits = total / math.log(2) / tokens
    lengths = dataset.segments[:, 1] - dataset.segments[:, 0] if streams else None
    return (
        tokens,
        bits,
        {
            "trained_chunk_or_block": getattr(task, "chunk_size", task.args.tokens_per_sample),
            "mean_segment": None if lengths is None else float(lengths.mean()),
            "longest_segment": None if lengths is None else int(lengths.max()),
        },
    )


def settings_of(options: argparse.Namespace) -> Iterator[Setting]:
    """Yield every context of the command line with every chunk."""
    names = {"segments": "segments", "contexts": "context", "exact_contexts": "exact_context"}
    names["context_window"] = "context_window"
    given = [{field: value} for name, field in names.items() for value in getattr(options, name) or []]
    for name in ("chunk_size", "attention_window"):
        if getattr(options, name):
            given = [{**setting, name: value} for value in getattr(options, name) for setting in given or [{}]]
    yield from given or [{}]


def numbers(text: str) -> List[int]:
    """Read whole numbers above 0, separated by commas."""
    found = [int(part) for part in text.split(",")]
    if min(found) < 1:
        raise ValueError
    return found


def check_same(file: Path, sources: Dict[str, str]) -> None:
    """Raise a ValueError unless an existing result file was measured on the same files."""
    settings = read_result(file)["settings"]
    changed = [name.partition("_")[0] for name, digest in sources.items() if settings.get(name) != digest]
    if changed:
        raise ValueError(
            f"{file} was measured on another {changed[0]}, or by an older version: give another --label or --output, "
            "or remove it"
        )


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="evaluate_lm", description=__doc__, formatter_class=form)
    add = parser.add_argument
    add("data", type=Path, help="data folder, made by fairseq-preprocess")
    add("--path", type=Path, required=True, help="checkpoint")
    add("--subset", default="test", help="split to score (default: test)")
    segments = "number of segments K, or several, comma separated (default: that of the training)"
    add("--segments", type=numbers, help=segments)
    add("--contexts", type=numbers, help="maximum tokens of a segment, or several numbers")
    add("--exact-contexts", type=numbers, help="exact tokens of a segment, which ends anywhere, or several numbers")
    add("--chunk-size", type=numbers, help="attention chunk, or several (default: that of the training)")
    reach = "for --arch llama_lm: steps that attention reads, or several numbers (default: that of the training)"
    add("--attention-window", type=numbers, help=reach)
    window = "for models without memory: tokens of a block that are context only, or several numbers"
    add("--context-window", type=numbers, help=window)
    add("--chunk-nums", type=int, default=2, help="chunks that one call reads (default: 2)")
    add("--max-tokens", type=int, default=36000, help="tokens per call, of segments side by side (default: 36000)")
    softmax = "positions whose softmax is computed at once (default: 1024)"
    add("--softmax-batch", type=int, default=1024, help=softmax)
    add("--device", choices=["cpu", "cuda"], help="device (default: cuda where there is a GPU)")
    add("--benchmark", default="language-modeling", help="name in the result files")
    add("--label", required=True, help="name of the model in the result files")
    output = "folder of the result files, one per setting; settings with a file are skipped"
    add("--output", type=Path, required=True, help=output)
    return parser


def run(options: argparse.Namespace, command: str) -> None:
    """Write a result file for each setting without one."""
    options.output.mkdir(parents=True, exist_ok=True)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    texts = [options.data / f"{options.subset}.{ending}" for ending in ("bin", "jsonl")]
    files = {"checkpoint_sha256": options.path, "text_sha256": next(filter(Path.is_file, texts), texts[0])}
    sources = {name: sha256_of(file) for name, file in files.items() if file.is_file()}  # loading names a missing file
    words = words_of(options.data, options.subset)
    loaded: Tuple[Any, Any, Any, Dict[str, Any]] = (None, None, None, {})
    for setting in settings_of(options):
        parts = [f"{letter}{setting[name]}" for name, letter in LETTERS.items() if name in setting]
        file = options.output / ("-".join([options.label, options.subset, *parts]) + ".json")
        if file.exists():
            check_same(file, sources)
            print_line(f"{file} exists, skipped")
            continue
        attention: Setting = {name: setting[name] for name in ("chunk_size", "attention_window") if name in setting}
        if loaded[0] != attention:
            loaded = (attention, *load(options.path, options.data, attention, device))
        _, model, task, training = loaded
        begun = time.perf_counter()
        tokens, bits, found = evaluate(model, task, setting, options)
        scores = {
            "perplexity": 2**bits,
            "bits_per_token": bits,
            "tokens_per_second": tokens / (time.perf_counter() - begun),
            **({"word_perplexity": 2 ** (bits * tokens / words)} if words else {}),
        }
        print_line(f"{file.stem}: {tokens:,} tokens, perplexity {2**bits:.2f}, {bits:.4f} bits per token")
        settings = {
            **setting,
            **{name: getattr(options, name) for name in ("subset", "chunk_nums", "max_tokens")},
            "threads": torch.get_num_threads(),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            **found,
            **sources,
            **training,
            **({"words": words} if words else {}),
        }
        seed = settings.pop("seed")
        write_result(file, make_result(options.benchmark, options.label, scores, tokens, command, seed, settings))


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; return its exit status."""
    options = build_parser().parse_args(arguments)
    given = sys.argv[1:] if arguments is None else arguments
    command = shlex.join(["python", "-m", "fairseq_mega.lab.evaluate.language_model", *map(str, given)])
    return exit_status("evaluate_lm", lambda: run(options, command))


if __name__ == "__main__":
    sys.exit(main())
