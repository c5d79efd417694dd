"""python -m fairseq_mega.lab.prepare.wmt16: see command.py."""

import sys

from fairseq_mega.lab.prepare.wmt16.command import main

if __name__ == "__main__":
    sys.exit(main())
