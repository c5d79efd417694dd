"""The command line of the quick start."""

import os
import shlex
import signal
import sys
from typing import List, Optional

from fairseq_mega.quickstart import options as command_line
from fairseq_mega.quickstart.work import Failed


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the quick start; returns the exit status: 0, 1 after an error message, 130 after an interrupt."""
    given = sys.argv[1:] if arguments is None else arguments
    options = command_line.parse(given)
    command = shlex.join(["bash", "scripts/quickstart.sh", *given])
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the command that is running, too
    os.environ.update(PYTHONWARNINGS="ignore", PYTHONUNBUFFERED="1")
    try:
        if options.task == command_line.TRANSLATION:
            from fairseq_mega.quickstart.translation import Translation

            Translation(options, command).run()
        else:
            from fairseq_mega.quickstart.language_model import LanguageModel  # what loads a model takes seconds

            LanguageModel(options).run()
    except (Failed, OSError, ValueError) as error:
        if str(error):  # otherwise a command has said it
            print(f"{command_line.PROGRAM}: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{command_line.PROGRAM}: interrupted; start it again to go on", file=sys.stderr)
        return 130
    return 0
