"""python -m fairseq_mega.lab.quickstart: the program of scripts/quickstart.sh."""

import sys

from fairseq_mega.lab.quickstart.command import main

if __name__ == "__main__":
    sys.exit(main())
