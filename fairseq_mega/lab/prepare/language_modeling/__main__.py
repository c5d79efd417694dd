"""python -m fairseq_mega.lab.prepare.language_modeling: see command.py."""

import sys

from fairseq_mega.lab.prepare.language_modeling.command import main

if __name__ == "__main__":
    sys.exit(main())
