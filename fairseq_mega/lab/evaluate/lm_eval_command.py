"""lm-evaluation-harness with the language models of this package:

fairseq-mega-lm-eval run --model fairseq_mega --model_args path=CHECKPOINT,data=FOLDER --tasks T
"""

import sys


def main() -> None:
    """Run the harness's command line; without the harness, print the command that installs it and fail."""
    try:
        from lm_eval.__main__ import cli_evaluate
    except ImportError:
        missing = "lm-evaluation-harness is missing: pip install 'fairseq_mega[lm-eval]'"
        sys.exit(f"fairseq-mega-lm-eval: error: {missing}")
    import fairseq_mega.lab.evaluate.harness  # noqa: F401, registers the models

    cli_evaluate()


if __name__ == "__main__":
    main()
