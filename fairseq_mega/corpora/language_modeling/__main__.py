"""python -m fairseq_mega.corpora.language_modeling: see command.py."""

import sys

from fairseq_mega.corpora.language_modeling.command import main

if __name__ == "__main__":
    sys.exit(main())
