"""python -m fairseq_mega.lab.comparisons KIND: what scripts/compare_KIND.sh runs in its environment."""

import sys

from fairseq_mega.lab.comparisons.command import main

if __name__ == "__main__":
    sys.exit(main())
