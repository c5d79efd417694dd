"""python -m fairseq_mega.lab.prepare.translation: see command.py."""

import sys

from fairseq_mega.lab.prepare.translation.command import main

if __name__ == "__main__":
    sys.exit(main())
