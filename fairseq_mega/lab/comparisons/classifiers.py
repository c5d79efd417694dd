"""Classifiers of the Long Range Arena in miniature: their trainings and scores."""

import argparse
import shlex
from pathlib import Path
from typing import Any, Dict, List

from fairseq_mega.compat.features import precision
from fairseq_mega.data.text_units import is_made_up
from fairseq_mega.lab.report.classifiers import BENCHMARK
from fairseq_mega.lab.runs.commands import module
from fairseq_mega.lab.runs.files import write_text
from fairseq_mega.lab.runs.folder import Work
from fairseq_mega.lab.runs.log_progress import Progress

PRESETS = {"text": "imdb", "image": "cifar10", "listops": "listop"}  # endings of the names of the architectures
# The FFNs of Transformer and MEGALODON are as wide as makes their layers as large as MEGA's with N = 16.
SIZES = {"layers": 4, "width": 64, "values": 128, "z": 32, "heads": 4, "ffn": 336, "megalodon_ffn": 152, "groups": 16}
SMOKE_SIZES = {"layers": 1, "width": 16, "values": 16, "z": 8, "heads": 2, "ffn": 24, "megalodon_ffn": 20, "groups": 4}
SMOKE_UPDATES = 4


class Classifiers:
    """The models of one task.

    Args:
        options: of the command line.
        work: folder of checkpoints, logs and results.
        command: that the result files name.
    """

    def __init__(self, options: argparse.Namespace, work: Work, command: str) -> None:
        self.options, self.work, self.command = options, work, command
        self.size = SMOKE_SIZES if options.smoke else SIZES
        self.updates = SMOKE_UPDATES if options.smoke else options.updates
        self.task = "lra-image" if options.task == "image" else "lra-text"
        self.device = [] if options.gpu else ["--cpu"]

    def models(self) -> Dict[str, List[Any]]:
        """The architecture of each model."""
        size, preset = self.size, PRESETS[self.options.task]
        chunked: List[Any] = ["--encoder-hidden-dim", size["values"], "--encoder-z-dim", size["z"]]
        chunked += ["--encoder-chunk-size", self.options.chunk]
        mega: List[Any] = ["--arch", f"mega_lra_{preset}", *chunked]
        heads: List[Any] = ["--encoder-ffn-embed-dim", size["ffn"], "--encoder-attention-heads", size["heads"]]
        transformer: List[Any] = ["--arch", f"transformer_lra_matched_{preset}", *heads]
        megalodon: List[Any] = ["--arch", f"megalodon_lra_{preset}", *chunked]
        megalodon += ["--encoder-ffn-embed-dim", size["megalodon_ffn"], "--norm-num-groups", size["groups"]]
        without_ema = [*mega, "--encoder-n-dim", 0]
        return {"mega": mega, "mega-n0": without_ema, "transformer": transformer, "megalodon": megalodon}

    def shared(self) -> List[Any]:
        """Arguments of every training: examples, optimiser, sizes, validation."""
        options, size = self.options, self.size
        interval = 2 if options.smoke else self.updates // 10 + 1
        words: List[Any] = ["--task", self.task, "--criterion", "lra_cross_entropy", "--optimizer", "adam"]
        words += ["--adam-betas", "(0.9, 0.98)", "--adam-eps", "1e-8", "--weight-decay", 0.01, "--clip-norm", 1.0]
        words += ["--lr", options.lr, "--lr-scheduler", "linear_decay", "--warmup-updates", interval]
        words += ["--total-num-update", self.updates, "--max-update", self.updates]
        words += ["--batch-size", options.batch, "--seed", options.seed, "--num-workers", 0]
        words += ["--encoder-layers", size["layers"], "--encoder-embed-dim", size["width"]]
        words += ["--classifier-out-dim", 2 * size["width"], "--log-format", "json", "--log-interval", 20]
        words += ["--validate-interval-updates", interval, "--save-interval-updates", interval]
        words += ["--keep-interval-updates", 1, "--no-epoch-checkpoints", "--best-checkpoint-metric", "accuracy"]
        words += ["--maximize-best-checkpoint-metric", "--sentence-class-num", self.classes()]
        if options.task == "image" and Path(options.data).name.startswith("cifar"):
            words += ["--pixel-normalization", 0.48, 0.24]
        return words

    def classes(self) -> int:
        """Number of labels of the data."""
        data = Path(self.options.data)
        if self.options.task == "image":
            return len(set((data / "label" / "train.label").read_text().splitlines()))
        lines = (data / "label-bin" / "dict.txt").read_text(encoding="utf-8").splitlines()
        return sum(not is_made_up(line.split(" ")[0]) for line in lines)

    def train(self, model: str) -> None:
        """Train, or go on from the last checkpoint."""
        words: List[Any] = [self.options.data, *self.shared(), *self.device, "--save-dir", self.work.folder / model]
        words += [f"--{flag}" for flag in precision.SETS[self.options.precision]]
        words = [str(word) for word in [*words, *self.models()[model]]]
        write_text(self.work.folder / "logs" / f"train-{model}.command", shlex.join(["fairseq-mega-train", *words]))
        command = module("fairseq_mega.lab.evaluate.lra_results", "train", *words)
        self.work.run(f"train-{model}", command, Progress(updates=self.updates))

    def score(self, model: str) -> None:
        """Score the checkpoint of best validation accuracy."""
        options, folder = self.options, self.work.folder
        words: List[Any] = [options.data, "--task", self.task, "--path", folder / model / "checkpoint_best.pt"]
        words += ["--log", folder / "logs" / f"train-{model}.log"]
        words += ["--train-command", folder / "logs" / f"train-{model}.command"]
        words += ["--json", folder / "results" / f"{model}.json", "--benchmark", BENCHMARK]
        words += ["--label", model, "--command", self.command, "--seed", options.seed, "--batch", options.batch]
        words += ["--test-batch", 50, "--early-epoch", 1]
        for name in ("task", "chunk", "lr", "precision"):
            words += ["--setting", f"{name}={getattr(options, name)}"]
        command = module("fairseq_mega.lab.evaluate.lra_results", "test", *words, *self.device)
        self.work.run(f"score-{model}", command)

    def report(self) -> List[str]:
        """Arguments of the report that prints the table."""
        return ["classifiers", str(self.work.folder / "results")]
