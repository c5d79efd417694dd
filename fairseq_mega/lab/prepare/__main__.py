"""python -m fairseq_mega.lab.prepare: the command fairseq-mega-prepare in a checkout that is not installed."""

import sys

from fairseq_mega.lab.prepare.command import main

if __name__ == "__main__":
    sys.exit(main())
