"""Turn a checkpoint of the published code (facebookresearch/mega) into one of this package.

The tensors are renamed to the paper's symbols (the published "alpha" and "delta" of the EMA are each other's),
trailing axes of length one are dropped, and copies of shared tables are left out. The published positions of
left-padded sources are kept (--published-source-padding), so that scores agree with the published code's. Language
models become models of --task mega_language_modeling; classifiers of the Long Range Arena keep their tasks.
"""

import argparse
import sys
from pathlib import Path
from typing import Optional, Sequence

from fairseq_mega.compat.loading import load_checkpoint
from fairseq_mega.models.checkpoint_files import save
from fairseq_mega.models.published_checkpoints import convert_checkpoint


def main(given: Optional[Sequence[str]] = None) -> int:
    """Run the command line; errors end it with exit status 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, required=True, help="checkpoint of the published code")
    parser.add_argument("--output", type=Path, required=True, help="file to write")
    arguments = parser.parse_args(given)
    if not arguments.input.is_file():
        parser.error(f"--input {arguments.input} does not exist")
    if arguments.output.exists():
        parser.error(f"--output {arguments.output} exists: give another name, or remove it first")
    try:
        converted = convert_checkpoint(load_checkpoint(arguments.input), str(arguments.input))
        save(converted, arguments.output)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(f"{len(converted['model'])} tensors written to {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
