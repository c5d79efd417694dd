"""Print a table or draw a plot: ``python -m fairseq_mega.reports NAME [--help]``."""

import sys

from fairseq_mega.reports.command import main

sys.exit(main())
