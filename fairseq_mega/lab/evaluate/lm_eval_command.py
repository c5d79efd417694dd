"""lm-evaluation-harness with the language models of this package:

fairseq-mega-lm-eval run --model fairseq_mega --model_args path=CHECKPOINT,data=FOLDER --tasks T
"""

import sys


def main() -> None:
    """Run the harness's command line; without the harness, print the command that installs it and fail."""
    try:
        from fairseq_mega.lab.evaluate.harness import cli_evaluate
    except ImportError as error:
        sys.exit(f"fairseq-mega-lm-eval: error: {error}")
    cli_evaluate()


if __name__ == "__main__":
    main()
