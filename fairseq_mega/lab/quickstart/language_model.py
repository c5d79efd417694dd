"""--task lm: a language model of bytes, from a dictionary of English or from the user's text."""

import argparse
import math
import shlex
import shutil
import sys
from itertools import islice
from pathlib import Path
from typing import List

import torch

from fairseq_mega.compat.features.precision import evaluating
from fairseq_mega.lab.prepare.download import sha256_of
from fairseq_mega.lab.prepare.language_modeling.published import PACKAGE
from fairseq_mega.lab.prepare.of_recipes import settings_of
from fairseq_mega.lab.prepare.options import HELD_OUT_SHARE
from fairseq_mega.lab.quickstart.training import QuickStart, fetched, recipe_of
from fairseq_mega.lab.reproduce.evaluating import evaluate
from fairseq_mega.lab.runs.commands import execute
from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.models.mega_lm import MegaLanguageModel

SMOKE_BYTES = 40_000
SHOWN = 700  # bytes of the text that the model writes at the end
SHELL = {"interactive": "--beam 1 --sampling --temperature 0.7", "eval-lm": "--gen-subset test"}
PROMPTS = {"gcide": "Sea, n. ", "own": ""}


class LanguageModel(QuickStart):
    """Quick start that trains a language model and ends with a text written by the model."""

    enough = 100  # a third of those measured on two busy cores

    def __init__(self, options: argparse.Namespace, command: str) -> None:
        self.command = command
        text = "dict-gcide" if options.text is None else sha256_of(Path(options.text))
        super().__init__(options, [f"text {text}"], str(self.usual_minutes()), [])

    def usual_minutes(self) -> float:
        """Return the time of the recipe."""
        return 60 * float(recipe_of("lm", smoke=False).config["optimization"]["stop_time_hours"])

    def data_words(self) -> List[str]:
        """Return the words that select blocks of the text, some of them for validation and test."""
        usual = settings_of(self.recipe)
        held_out = round(usual.held_out * usual.limit, -3)  # bytes for each of the two; the share is a rounded one
        limit = SMOKE_BYTES if self.options.smoke else usual.limit
        if self.options.text is None:
            (deb,) = fetched([PACKAGE], self.options.packages, "--text FILE")
            words = ["gcide", "--deb", str(deb)]
        else:
            words = ["text-lm", "--unit", "bytes", "--train", self.options.text]
            limit = min(limit, Path(self.options.text).stat().st_size)
        share = min(HELD_OUT_SHARE, held_out / limit)
        return [*words, "--limit", str(limit), "--held-out", f"{share:.6f}"]

    def start(self) -> None:
        """Run the remaining stages, and show the model."""
        self.train()
        self.work.stage("evaluate", self.evaluate)
        self.show()

    def evaluate(self) -> None:
        """Score the test text, each byte once."""
        shutil.rmtree(self.folder / "results", ignore_errors=True)
        evaluate(self.job, execute, [], self.command)

    def show(self) -> None:
        """Print bits per byte, and a text that the model writes byte by byte."""
        (file,) = (self.folder / "results").rglob("*.json")
        result = read_result(file)
        bits = result["scores"]["bits_per_token"]
        nats = bits * math.log(2)
        print(f"bits per byte: {bits:.3f} ({nats:.3f} nats), of {result['examples']:,} bytes of held-out text\n")
        where = self.folder / "checkpoints", "checkpoint_best.pt", self.folder / "data-bin"
        generator = MegaLanguageModel.from_pretrained(*map(str, where))
        generator.to("cuda" if self.gpus else "cpu")
        prompt = PROMPTS["own" if self.options.text else "gcide"]
        random = torch.Generator(generator.device).manual_seed(self.recipe.seeds[0])
        print(prompt, end="", flush=True)
        with evaluating("fp32", generator.device.type):
            for piece in islice(generator.stream(prompt, temperature=0.7, generator=random), SHOWN):
                print(piece, end="", flush=True)
        print(f"\n\ncheckpoint: {where[0] / where[1]}\nscore and settings: {file}")
        code = [
            f"from {MegaLanguageModel.__module__} import MegaLanguageModel",
            f"beginning = {prompt!r}  # or any text for the model to continue",
            f"model = MegaLanguageModel.from_pretrained({', '.join(repr(str(part)) for part in where)})",
            "print(beginning + model.complete(beginning, 500, temperature=0.7))",
        ]
        print(
            f"to write more:\n\nPYTHONWARNINGS=ignore {shlex.quote(sys.executable)} - <<'END'", *code, "END", sep="\n"
        )
        programs = [shlex.quote(str(Path(sys.prefix) / "bin" / f"fairseq-mega-{name}")) for name in SHELL]
        model = shlex.join([str(where[2]), "--path", str(where[0] / where[1]), *["--cpu"][self.gpus > 0 :]])
        print("\nin the shell, to continue each line that you type, and to score the test text again:\n")
        for program, more in zip(programs, SHELL.values()):
            print(f"  {program} {model} {more}")
