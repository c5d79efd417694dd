"""python -m fairseq_mega.corpora.wmt16: see command.py."""

import sys

from fairseq_mega.corpora.wmt16.command import main

if __name__ == "__main__":
    sys.exit(main())
