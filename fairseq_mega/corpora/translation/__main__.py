"""python -m fairseq_mega.corpora.translation: see command.py."""

import sys

from fairseq_mega.corpora.translation.command import main

if __name__ == "__main__":
    sys.exit(main())
