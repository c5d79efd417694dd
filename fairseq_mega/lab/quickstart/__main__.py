"""python -m fairseq_mega.lab.quickstart: what scripts/quickstart.sh runs in its environment."""

import sys

from fairseq_mega.lab.quickstart.command import main

if __name__ == "__main__":
    sys.exit(main())
