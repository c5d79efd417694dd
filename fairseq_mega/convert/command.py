"""Convert checkpoints of the published code to checkpoints of this package, and back.

The layout of the input is recognised from its contents:

  facebookresearch/mega    translation, language models, the Long Range Arena, speech
  XuezheMax/mega-image     image classifiers
  XuezheMax/megalodon      the folder of a consolidated model, of one or several tensor-parallel ranks
  transformers 4.30-4.46   the folder of an encoder with a masked-LM head, such as mnaylor/mega-base-wikitext

--to official converts a model of this package to the published layout. Without --to official, a model of this package
is copied. The suffix of --output selects the file format: .pt, or .safetensors with a JSON file of the configuration
beside it.

A converted translator keeps the published positions of left-padded sources (--published-source-padding), so that its
scores agree with the published code; with an encoder in chunks only where the padding is whole chunks. A converted
language model has --task mega_language_modeling. No code in a file is executed.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Optional, Sequence


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--input", type=Path, required=True, help="checkpoint file, or folder, to convert")
    parser.add_argument("--output", type=Path, required=True, help="file (.pt or .safetensors) or folder to write")
    parser.add_argument("--to", choices=["ours", "official"], help="layout to write (default: ours)")
    parser.add_argument(
        "--verify",
        action="store_true",
        help="convert the result back and require that every tensor is equal bit for bit",
    )
    return parser


def main(given: Optional[Sequence[str]] = None) -> int:
    """Run the command line; an error ends the process with exit status 2, without a reader of the output 1."""
    parser = build_parser()
    arguments = parser.parse_args(given)
    from fairseq_mega.convert import layouts  # with torch and fairseq it needs seconds
    from fairseq_mega.convert.conversion import convert, weights_of

    missing = layouts.missing(arguments.input)
    if missing:
        parser.error(f"--input {arguments.input} {missing}")
    if arguments.output.exists():
        parser.error(f"--output {arguments.output} exists: give another name, or remove it first")
    try:
        converted = convert(arguments)
        layouts.write(converted, arguments.output)
    except BrokenPipeError:  # nobody reads standard output any more, as after ``| head``
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OSError, ValueError) as error:
        parser.error(str(error))
    weights, tensors = len(weights_of(converted)), len(converted["model"])
    others = f" and {tensors - weights} tensors that are not learned" if tensors > weights else ""
    print(f"{weights} weights{others} written to {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
