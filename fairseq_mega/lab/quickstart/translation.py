"""--task translation: a translator from the help of LibreOffice, English to German, or from the user's text."""

import argparse
import math
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

from fairseq_mega.lab.inspect.recipe_models import vocab_size_of
from fairseq_mega.lab.prepare.download import sha256_of
from fairseq_mega.lab.prepare.libreoffice_help import PACKAGES
from fairseq_mega.lab.quickstart.training import QuickStart, fetched, recipe_of
from fairseq_mega.lab.report.command import main as report
from fairseq_mega.lab.reproduce.evaluating import generated, score_words, settings_words, translate, translator_words
from fairseq_mega.lab.runs.commands import StageError, execute
from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.stages import elapsed, print_line

SMOKE_PIECES, SMOKE_PAIRS = 400, 400
WHOLE_MINUTES = 25.0  # minutes from the call to the last line, even on a busy machine
LATER_MINUTES = 4.0  # minutes of translating and scoring there; two idle cores need less than two
MINUTES = (6.0, 15.0)  # minutes of the training, at least and at most
LEAST = 16.0  # BLEU of a model that translates single words
EXAMPLES = ["Open the file.", "Click on the Remote Files button in the Start Center.", "Choose Format - Page."]
INTERACTIVE = "fairseq-mega-interactive"


class Translation(QuickStart):
    """Quick start that trains on parallel text and ends in translations."""

    enough = 1000  # with fewer, the model has not learned yet which word translates which

    def __init__(self, options: argparse.Namespace, command: str) -> None:
        self.command = command
        recipe, languages = recipe_of("translation", options.smoke), (options.source_lang, options.target_lang)
        self.pieces = SMOKE_PIECES if options.smoke else vocab_size_of(recipe)
        task = [f"languages {' '.join(languages)}", f"vocabulary {self.pieces}", f"beam {recipe.evaluate['beam']}"]
        prefixes = {"": options.text, "valid ": options.valid, "test ": options.test}
        texts = [
            f"{use}{sha256_of(Path(f'{prefix}.{language}'))}"
            for use, prefix in prefixes.items()
            for language in (languages if prefix else ())
        ]
        super().__init__(options, task, "as many as are left", texts)
        self.recipe.config["task"].update(source_lang=languages[0], target_lang=languages[1])

    def usual_minutes(self) -> float:
        """Return the minutes left after setting up: a long installation shortens the training."""
        left = WHOLE_MINUTES - LATER_MINUTES - elapsed() / 60
        return min(max(left, MINUTES[0]), MINUTES[1])

    def data_words(self) -> List[str]:
        """Return the arguments that clean the text, divide it and split it into subwords."""
        options = self.options
        languages = ["--source-lang", options.source_lang, "--target-lang", options.target_lang]
        if options.text is None:
            own = f"--text PREFIX (files PREFIX.{options.source_lang} and PREFIX.{options.target_lang})"
            debs = fetched(list(PACKAGES.values()), options.packages, own)
            words = ["help-pairs", "--deb", *map(str, debs)]
        else:
            given = {"--text": options.text, "--valid": options.valid, "--test": options.test}
            words = ["own-pairs", *(word for name, prefix in given.items() if prefix for word in (name, prefix))]
        few = ["--limit", str(SMOKE_PAIRS)] if options.smoke else []
        return [*words, *languages, "--vocab-size", str(self.pieces), *few]

    def start(self) -> None:
        """Run the remaining stages, and show the model."""
        if shutil.which(INTERACTIVE) is None:  # the command that shows the model at the end
            raise StageError(f"the command '{INTERACTIVE}' was not found: run 'bash scripts/setup.sh'")
        self.train()
        self.checkpoint = self.folder / "checkpoints" / "checkpoint_best.pt"
        self.work.stage("translate", self.translate)
        self.score()
        self.show()

    def translate(self) -> None:
        """Translate the test sentences, again if that was done before."""
        generated(self.job, "best").unlink(missing_ok=True)
        translate(self.job, "best", self.checkpoint, execute, {})

    def score(self) -> None:
        """Print BLEU and examples, and write the result file."""
        settings = {"task": f"{self.options.source_lang}-{self.options.target_lang}", "precision": self.precision}
        words = [*score_words(self.job, "best"), "--examples", "5", "--json", str(self.folder / "result.json")]
        words += ["--command", self.command, "--seed", str(self.job.seed), "--label", "quickstart"]
        words += ["--benchmark", "quickstart", *settings_words({**settings, "train_minutes": f"{self.minutes:.2f}"})]
        if report(["translations", *words]):
            raise StageError

    def show(self) -> None:
        """Translate some sentences of an interface, and print the line to type for more."""
        typing = [INTERACTIVE, *translator_words(self.job, self.checkpoint)]
        if self.options.text is None:
            self._show_examples(typing)
        if self.options.text is None and not self.updates:
            self._warn(read_result(self.folder / "result.json")["scores"]["sacrebleu"])
        print(f"\ncheckpoint: {self.checkpoint}")
        print(f"score and settings: {self.folder / 'result.json'}")
        print(
            f"\nTo translate what you type ({self.job.config['task']['source_lang']} to "
            f"{self.job.config['task']['target_lang']}), paste this line:\n"
        )
        print(f"  {shlex.join([str(Path(sys.prefix) / 'bin' / INTERACTIVE), *typing[1:]])}")

    def _warn(self, score: float) -> None:
        """Print a remedy if the BLEU score shows that the model has not learned to translate."""
        if score < LEAST:
            print_line(
                f"{score:.1f} BLEU: the model has not learned yet which word translates which; 15 minutes on two "
                f"idle cores give 28 to 36. Give --train-minutes {2 * math.ceil(self.minutes)} or more and another "
                "--work-dir, or wait until the machine is idle"
            )

    @staticmethod
    def _show_examples(typing: List[str]) -> None:
        done = subprocess.run(typing, input="\n".join(EXAMPLES) + "\n", capture_output=True, encoding="utf-8")
        if done.returncode:
            raise StageError(f"{INTERACTIVE} failed: {done.stderr.strip().splitlines()[-1]}")
        answers = [line.split("\t")[2] for line in done.stdout.splitlines() if line.startswith("D-")]
        for source, answer in zip(EXAMPLES, answers):
            print(f"  {source:55} {answer}")
