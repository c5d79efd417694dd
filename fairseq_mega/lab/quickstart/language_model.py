"""--task lm: a language model of bytes, from a dictionary of English or from a person's own text."""

import argparse
import math
import os
import shlex
import shutil
import sys
from itertools import islice
from pathlib import Path

import torch

from fairseq_mega.compat.features.precision import evaluating
from fairseq_mega.lab.prepare.binarised import binarise
from fairseq_mega.lab.prepare.checksums import sha256_of
from fairseq_mega.lab.prepare.language_modeling.counting import count
from fairseq_mega.lab.prepare.language_modeling.gcide import obtain_gcide
from fairseq_mega.lab.prepare.language_modeling.splitting import Cut, split_text, tell_marks
from fairseq_mega.lab.prepare.language_modeling.texts import preprocess_words
from fairseq_mega.lab.quickstart.hyper_parameters import kept_settings, recipe_of
from fairseq_mega.lab.quickstart.training import device_options, need_commands, plan_minutes, precision_of, train
from fairseq_mega.lab.runs.commands import module
from fairseq_mega.lab.runs.files import write_json
from fairseq_mega.lab.runs.folder import Work
from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.models.mega_lm import MegaLanguageModel

BYTES, SMOKE_BYTES = 6_000_000, 40_000  # of a text, from 20 blocks of it: more than is read in the time
HELD_OUT = 100_000  # bytes at most of validation and of test: scoring takes time, too
SHOWN = 700  # bytes of text that are written at the end
ENOUGH = 100  # updates: a third of those measured on two busy cores
PROMPTS = {"gcide": "Sea, n. ", "own": ""}


class LanguageModel:
    """The stages of a language model, in the order in which ``run`` does them."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.recipe = recipe_of("lm", options.smoke)
        self.updates = options.updates or ("20" if options.smoke else None)
        text = "dict-gcide" if options.text is None else sha256_of(Path(options.text))
        self.minutes = 60 * self.recipe.config["optimization"]["stop_time_hours"]
        lines = [f"text {text}", *kept_settings(self.recipe), f"updates {self.updates or 'by time'}"]
        lines += [f"minutes {options.train_minutes or self.minutes}", f"precision {options.precision}"]
        self.work = Work(options.work_dir, lines, "--work-dir")
        self.folder = self.work.folder
        self.text = Path(options.text) if options.text else self.folder / "raw" / "gcide.txt"

    def run(self) -> None:
        """From the text to a text of its own."""
        work, options = self.work, self.options
        need_commands("fairseq-preprocess", "fairseq-mega-train")
        if options.text is None:
            work.stage("fetch", self.fetch)
        work.stage("split", self.split)
        self.device = device_options(options.cpu)
        self.precision = precision_of(work, options.precision, self.device)
        work.stage("binarise", self.binarise)
        work.stage("plan", lambda: plan_minutes(work, options.train_minutes, self.updates, self.minutes))
        work.stage("train", self.train)
        work.stage("evaluate", self.evaluate)
        self.show()

    def fetch(self) -> None:
        """Fetch the dictionary, and take its text out."""
        otherwise = "Use your own text instead, on any system: --text FILE"
        records = obtain_gcide(self.folder / "raw", self.options.packages, otherwise=otherwise)
        write_json(self.folder / "SOURCE.json", records)

    def split(self) -> None:
        """Hold blocks of the text out for validation and test."""
        limit = min(SMOKE_BYTES if self.options.smoke else BYTES, self.text.stat().st_size)
        share = min(0.05, HELD_OUT / limit)
        split_text(Cut("bytes", self.text, limit=limit, held_out=share), self.folder / "text")
        if self.options.text is not None:
            tell_marks(self.text)

    def binarise(self) -> None:
        """Write the text as numbers."""
        text, data, log = self.folder / "text", self.folder / "data-bin", self.work.log_file("preprocess")
        binarise(text, preprocess_words(text, 1 if self.options.smoke else os.cpu_count() or 1), data, log)
        count(data, text)

    def train(self) -> None:
        """Train."""
        train(self.work, self.recipe, [*self.device, "--precision", self.precision], self.updates, ENOUGH)

    def evaluate(self) -> None:
        """Score the test text, each byte once."""
        shutil.rmtree(self.folder / "results", ignore_errors=True)
        path = self.folder / "checkpoints" / "checkpoint_best.pt"
        what = [self.folder / "data-bin", "--path", path, "--label", "quickstart", "--output", self.folder / "results"]
        where = [
            "--segments",
            self.recipe.evaluate["segments"],
            "--device",
            "cpu" if self.device else "cuda",
            "--benchmark",
            "quickstart-lm",
        ]
        self.work.run("evaluate", module("fairseq_mega.lab.evaluate.language_model", *what, *where))

    def show(self) -> None:
        """Print bits per byte and a text that the model writes, byte by byte."""
        (file,) = (self.folder / "results").glob("*.json")
        result = read_result(file)
        bits = result["scores"]["bits_per_token"]
        nats = bits * math.log(2)
        print(f"bits per byte: {bits:.3f} ({nats:.3f} nats), of {result['examples']:,} bytes of held-out text\n")
        where = self.folder / "checkpoints", "checkpoint_best.pt", self.folder / "data-bin"
        generator = MegaLanguageModel.from_pretrained(*map(str, where))
        generator.to("cpu" if self.device else "cuda")
        prompt = PROMPTS["own" if self.options.text else "gcide"]
        random = torch.Generator(generator.device).manual_seed(self.recipe.seeds[0])
        print(prompt, end="", flush=True)
        with evaluating("fp32", generator.device.type):
            for piece in islice(generator.stream(prompt, temperature=0.7, generator=random), SHOWN):
                print(piece, end="", flush=True)
        print(f"\n\ncheckpoint: {where[0] / where[1]}\nscore and settings: {file}")
        load = f"M.from_pretrained(*{[str(part) for part in where]})"
        code = f"from {MegaLanguageModel.__module__} import MegaLanguageModel as M; "
        code += f"print({load}.complete({prompt!r}, 500))"
        print(f"to write more: PYTHONWARNINGS=ignore {shlex.join([sys.executable, '-c', code])}")
