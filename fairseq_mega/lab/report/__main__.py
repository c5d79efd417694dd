"""fairseq-mega-report where the package is not installed: ``python -m fairseq_mega.lab.report``."""

import sys

from fairseq_mega.lab.report.command import main

sys.exit(main())
