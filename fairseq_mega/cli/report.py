"""Entry point of fairseq-mega-report: tables, plots and a page of results, and the tables of the documentation."""

import sys

from fairseq_mega.reports.command import main

if __name__ == "__main__":
    sys.exit(main())
