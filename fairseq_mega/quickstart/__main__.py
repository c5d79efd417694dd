"""python -m fairseq_mega.quickstart: what scripts/quickstart.sh runs in its environment."""

import sys

from fairseq_mega.quickstart.command import main

if __name__ == "__main__":
    sys.exit(main())
