"""The command line of the quick start."""

import shlex
import sys
from typing import List, Optional

from fairseq_mega.lab.quickstart import options as command_line
from fairseq_mega.lab.runs.script import run_script


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the quick start; returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    options = command_line.parse(given)
    command = shlex.join(["bash", f"scripts/{command_line.PROGRAM}", *given])

    def work() -> None:
        from fairseq_mega.compat.files import locks  # importing models needs seconds
        from fairseq_mega.lab.quickstart.language_model import LanguageModel
        from fairseq_mega.lab.quickstart.translation import Translation

        task = {command_line.TRANSLATION: Translation, command_line.LM: LanguageModel}[options.task]
        quick_start = task(options, command)
        folder = quick_start.folder
        with locks.held(folder / "run.lock", f"--work-dir {folder}", "quick start"):
            quick_start.start()

    return run_script(command_line.PROGRAM, work)
