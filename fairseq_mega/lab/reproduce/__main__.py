"""python -m fairseq_mega.lab.reproduce: the command fairseq-mega-reproduce in a checkout that is not installed."""

import sys

from fairseq_mega.lab.reproduce.command import main

if __name__ == "__main__":
    sys.exit(main())
