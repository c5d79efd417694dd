"""--task translation: an English-German translator from the help of LibreOffice, or one from a person's own text."""

import argparse
import math
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

from fairseq_mega.compat.patches.bleu_tokenizers import tokenizer_for
from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.prepare.checksums import sha256_of
from fairseq_mega.lab.prepare.debian import fetch_package, need_dpkg, unpack_package
from fairseq_mega.lab.prepare.translation.dataset import write_help_pairs, write_own_pairs
from fairseq_mega.lab.prepare.translation.subwords import cut_pairs
from fairseq_mega.lab.quickstart.hyper_parameters import kept_settings, recipe_of
from fairseq_mega.lab.quickstart.training import device_options, need_commands, plan_minutes, precision_of, train
from fairseq_mega.lab.report.command import main as report
from fairseq_mega.lab.runs.commands import StageError
from fairseq_mega.lab.runs.folder import Work
from fairseq_mega.lab.runs.log_progress import Progress
from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.stages import elapsed, say

PACKAGES = ("libreoffice-help-en-us", "libreoffice-help-de")
SMOKE_VOCABULARY, SMOKE_BEAM = 400, 2
WHOLE_MINUTES = 25.0  # from the call to the last line, on a busy machine too
LATER_MINUTES = 4.0  # translating and scoring there; two idle cores take less than two
MINUTES = (6.0, 15.0)  # of the training, at least and at most
ENOUGH = 1000  # updates: fewer have not learned yet which word translates which
LEAST = 16.0  # BLEU of a model that has learned which word translates which
EXAMPLES = ["Open the file.", "Click on the Remote Files button in the Start Center.", "Choose Format - Page."]


class Translation:
    """The stages of a translator, in the order in which ``run`` does them."""

    def __init__(self, options: argparse.Namespace, command: str) -> None:
        self.options, self.command = options, command
        self.recipe = recipe_of("translation", options.smoke)
        self.vocabulary = SMOKE_VOCABULARY if options.smoke else self.recipe.cell["vocabulary"]
        self.beam = SMOKE_BEAM if options.smoke else self.recipe.evaluate["beam"]
        self.updates = options.updates or ("20" if options.smoke else None)
        self.source, self.target = options.source_lang, options.target_lang
        self.limit = 400 if options.smoke else None
        self.work = Work(options.work_dir, self._kept_settings(), "--work-dir")
        self.folder = self.work.folder

    def _kept_settings(self) -> List[str]:
        options = self.options
        lines = [f"languages {self.source} {self.target}", f"vocabulary {self.vocabulary}", f"beam {self.beam}"]
        lines += kept_settings(self.recipe)
        lines += [f"updates {self.updates or 'by time'}", f"minutes {options.train_minutes or 'as many as are left'}"]
        lines += [f"precision {options.precision}"]
        for prefix in filter(None, (options.text, options.valid, options.test)):
            lines += [sha256_of(Path(f"{prefix}.{language}")) for language in (self.source, self.target)]
        return lines

    def run(self) -> None:
        """From the text to translations."""
        work, options = self.work, self.options
        need_commands("fairseq-preprocess", *(f"fairseq-mega-{name}" for name in ("train", "generate", "interactive")))
        reason = tokenizer_for(self.target).reason
        if reason:
            say(f"BLEU will be one of characters, not of words: {reason}")
        if options.text is None:
            work.stage("fetch", self.fetch)
            versions = (self.folder / "help" / "versions").read_text(encoding="utf-8").splitlines()
            say(f"text: {'; '.join(versions)}")
        work.stage("text", self.prepare_text)
        self.device = device_options(options.cpu)
        self.precision = precision_of(work, options.precision, self.device)
        work.stage("subwords", self.learn_subwords)
        work.stage("binarise", self.binarise)
        work.stage("plan", self.plan)
        work.stage("train", self.train)
        work.stage("translate", self.translate)
        self.score()
        self.show()

    def fetch(self) -> None:
        """Fetch and unpack the packages with the text."""
        own = f"--text PREFIX (files PREFIX.{self.source} and PREFIX.{self.target})"
        otherwise = f"Use your own text instead, on any system: {own}"
        need_dpkg(otherwise)
        partial = self.folder / "help.partial"
        shutil.rmtree(partial, ignore_errors=True)
        described = ""
        for name in PACKAGES:
            path = fetch_package(name, self.options.packages, otherwise)
            package = unpack_package(name, path, partial, "remove it, so that it is fetched again")
            described += f"{name} {package.version} (MPL-2.0)\n"
        (partial / "versions").write_text(described, encoding="utf-8")
        shutil.rmtree(self.folder / "help", ignore_errors=True)
        partial.rename(self.folder / "help")

    def _languages(self) -> List[object]:
        return ["--source-lang", self.source, "--target-lang", self.target]

    def prepare_text(self) -> None:
        """Clean the text and split it."""
        options, output, languages = self.options, self.folder / "text", (self.source, self.target)
        if options.text is None:
            write_help_pairs(self.folder / "help", output, languages, limit=self.limit)
        else:
            prefixes = {"train": options.text, "valid": options.valid, "test": options.test}
            write_own_pairs(prefixes, output, languages, limit=self.limit)

    def learn_subwords(self) -> None:
        """Learn subwords, and cut the text into them."""
        cut_pairs(self.folder / "text", self.folder / "pieces", (self.source, self.target), self.vocabulary)

    def binarise(self) -> None:
        """Write the text as numbers."""
        shutil.rmtree(self.folder / "data-bin", ignore_errors=True)
        command: List[object] = ["fairseq-preprocess", *self._languages(), "--joined-dictionary"]
        for split in ("train", "valid", "test"):
            command += [f"--{split}pref", self.folder / "pieces" / split]
        self.work.run("binarise", [*command, "--destdir", self.folder / "data-bin"])
        shutil.copyfile(self.folder / "pieces" / "joint.model", self.folder / "data-bin" / MODEL_FILE)

    def plan(self) -> None:
        """Share out the time: a machine that took long to set up trains for less."""
        left = WHOLE_MINUTES - LATER_MINUTES - elapsed() / 60
        plan_minutes(self.work, self.options.train_minutes, self.updates, min(max(left, MINUTES[0]), MINUTES[1]))

    def train(self) -> None:
        """Train."""
        self.recipe.config["task"].update(source_lang=self.source, target_lang=self.target)
        train(self.work, self.recipe, [*self.device, "--precision", self.precision], self.updates, ENOUGH)

    def _translator(self) -> List[object]:
        wanted = self.recipe.evaluate
        return [
            *("--path", self.folder / "checkpoints" / "checkpoint_best.pt", *self._languages()),
            *("--bpe", "sentencepiece", "--sentencepiece-model", self.folder / "pieces" / "joint.model"),
            *("--beam", self.beam, "--max-len-a", wanted["max_len_a"], "--max-len-b", wanted["max_len_b"]),
            *self.device,
        ]

    def _test_sentences(self) -> int:
        with open(self.folder / "text" / f"test.{self.source}", encoding="utf-8", newline="\n") as lines:
            return sum(1 for _ in lines)

    def translate(self) -> None:
        """Translate the test set."""
        self.work.log_file("generate").unlink(missing_ok=True)  # an interrupted run's must not be counted twice
        command = ["fairseq-mega-generate", self.folder / "data-bin", *self._translator(), "--gen-subset", "test"]
        command += ["--max-tokens", 4000, "--required-batch-size-multiple", 1, "--num-workers", 0]
        self.work.run("generate", command, Progress(sentences=self._test_sentences()))

    def score(self) -> None:
        """Print BLEU and examples, and write the result file."""
        text, log = self.folder / "text", self.work.log_file("generate")
        minutes = (self.folder / "minutes").read_text(encoding="utf-8").strip()
        command: List[object] = ["translations", log, "--reference", text / f"test.{self.target}"]
        command += ["--source", text / f"test.{self.source}", "--target-lang", self.target]
        command += ["--expect", self._test_sentences(), "--examples", 5, "--json", self.folder / "result.json"]
        command += ["--command", self.command, "--seed", self.recipe.seeds[0], "--label", "quickstart"]
        command += ["--setting", f"precision={self.precision}", "--setting", f"train_minutes={minutes}"]
        if report([str(part) for part in command]):
            raise StageError

    def show(self) -> None:
        """Translate some sentences of an interface, and print the line to type for more."""
        typing = ["fairseq-mega-interactive", self.folder / "data-bin", *self._translator()]
        if self.options.text is None:
            self._show_examples(typing)
        if self.options.text is None and not self.updates:
            score = read_result(self.folder / "result.json")["scores"]["sacrebleu"]
            self._warn(score, float((self.folder / "minutes").read_text(encoding="utf-8")))
        print(f"\ncheckpoint: {self.folder / 'checkpoints' / 'checkpoint_best.pt'}")
        print(f"score and settings: {self.folder / 'result.json'}")
        print(
            f"\nTo translate what you type ({self.source} to {self.target}), paste this line, wait some seconds, then "
            f"type a sentence and press return\n(Ctrl-D ends it; without the part from | on it shows pieces and scores "
            f"too):\n"
        )
        typing[0] = Path(sys.prefix) / "bin" / "fairseq-mega-interactive"
        line = shlex.join(str(part) for part in typing)
        print(f"  PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore {line} | awk -F '\\t' '/^D-/ {{ print $3; fflush() }}'")

    @staticmethod
    def _warn(score: float, minutes: float) -> None:
        """Say what helps where a BLEU score tells that the model has not learned to translate."""
        if score < LEAST:
            say(
                f"{score:.1f} BLEU: the model has not learned yet which word translates which, where 15 minutes of two "
                f"idle cores come to 35. Give --train-minutes {2 * math.ceil(minutes)} or more and another --work-dir, "
                "or wait until the machine is idle"
            )

    def _show_examples(self, typing: List[object]) -> None:
        command = [str(part) for part in typing]
        done = subprocess.run(command, input="\n".join(EXAMPLES) + "\n", capture_output=True, encoding="utf-8")
        if done.returncode:
            raise StageError(f"fairseq-mega-interactive failed: {done.stderr.strip().splitlines()[-1]}")
        answers = [line.split("\t")[2] for line in done.stdout.splitlines() if line.startswith("D-")]
        for source, answer in zip(EXAMPLES, answers):
            print(f"  {source:55} {answer}")
