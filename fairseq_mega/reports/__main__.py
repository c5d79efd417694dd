"""fairseq-mega-report where the package is not installed: ``python -m fairseq_mega.reports``."""

import sys

from fairseq_mega.reports.command import main

sys.exit(main())
