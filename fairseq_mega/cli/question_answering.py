"""Entry point of fairseq-mega-qa: questions about long documents, answered and scored."""

import sys

from fairseq_mega.reports.question_answering.command import main

if __name__ == "__main__":
    sys.exit(main())
