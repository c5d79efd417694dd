"""python -m fairseq_mega.lab.prepare.text_scripts NAME: what scripts/prepare_NAME.sh runs in its environment."""

import sys

from fairseq_mega.lab.prepare.text_scripts.command import main

if __name__ == "__main__":
    sys.exit(main())
