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
from typing import Any, Dict, Optional, Sequence

from fairseq_mega.compat.files.settings import other_settings
from fairseq_mega.convert import layouts
from fairseq_mega.convert.building import check_complete
from fairseq_mega.convert.options import flat_options
from fairseq_mega.convert.verifying import verify, weights_of

PADDED = (
    "This translator was trained without --published-source-padding: in a batch of unequal lengths the published code "
    "counts padding into the positions of its sources, and translates worse; translate one sentence at a time there."
)

WINDOW = (
    "This model computes the norms' statistics over the whole text, the published code at test time over the last 6 to "
    "8 chunks, as --statistics-window 6 does here."
)


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


def convert(arguments: argparse.Namespace) -> Dict[str, Any]:
    """Return the checkpoint to write; raises OSError and ValueError."""
    path = str(arguments.input)
    where = f"--input {path}"
    given = layouts.read(arguments.input)
    official = arguments.to == "official"
    if official:
        if arguments.input.is_dir():
            raise ValueError(f"{where}: --to official requires a checkpoint of this package; this is a published one")
        converted = layouts.to_official(given, path)
        if flat_options(converted).get("published_source_padding") is False:
            print(PADDED, file=sys.stderr)
        if "consolidation" in converted and not flat_options(given).get("statistics_window"):
            print(WINDOW, file=sys.stderr)
    elif layouts.is_this_packages(given):
        if arguments.verify:
            raise ValueError(
                f"{where} has this package's layout, and without --to official it is only copied: omit --verify"
            )
        return given
    else:
        converted = layouts.to_ours(given, path)
        advice = layouts.advice(given)
        if advice:
            print(advice, file=sys.stderr)
    ours = layouts.to_ours(converted, path) if official else converted
    lost = other_settings(given, ours) if official else []
    if lost:
        raise ValueError(f"{where}: --to official loses {', '.join(lost)}; nothing was written")
    check_complete(ours["args"], ours["model"], where, our_names=official)
    if arguments.verify:
        back = ours if official else layouts.to_official(converted, path)
        print("\n".join(verify(given, back, ours, where)), flush=True)
    return converted


def main(given: Optional[Sequence[str]] = None) -> int:
    """Run the command line; an error ends the process with exit status 2, without a reader of the output 1."""
    parser = build_parser()
    arguments = parser.parse_args(given)
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
