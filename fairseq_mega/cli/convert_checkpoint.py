"""Turn checkpoints of the published code into ones of this package, and back.

What the file holds is recognised from its contents: a model of facebookresearch/mega (translation, language models,
the Long Range Arena, speech) becomes one of this package, with the paper's names of tensors, and so does the folder of
a consolidated model of XuezheMax/megalodon, of one or several tensor-parallel ranks; --to official turns one of this
package into theirs. A model of this package is copied as it is, to or from safetensors: with the suffix
.safetensors the output has a JSON of the configuration beside it.

The published positions of left-padded sources are kept (--published-source-padding), so that scores agree with the
published code's. Language models become models of --task mega_language_modeling. Nothing in a file is executed.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

from fairseq_mega.compat.loading import load_checkpoint
from fairseq_mega.models.checkpoint_files import save
from fairseq_mega.models.published_checkpoints import convert_checkpoint, is_ours, publish_checkpoint
from fairseq_mega.models.published_checkpoints.building import check_complete
from fairseq_mega.models.published_checkpoints.megalodon import (
    convert_megalodon,
    is_consolidated,
    is_megalodon,
    publish_megalodon,
    read_consolidated,
    save_consolidated,
)
from fairseq_mega.models.published_checkpoints.verifying import largest_difference


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--input", type=Path, required=True, help="checkpoint of either layout")
    parser.add_argument("--output", type=Path, required=True, help="file to write (.pt or .safetensors)")
    parser.add_argument("--to", choices=["ours", "official"], help="layout to write (default: ours)")
    parser.add_argument(
        "--verify", action="store_true", help="run both layouts on random input, print the largest difference"
    )
    return parser


def convert(arguments: argparse.Namespace) -> Dict[str, Any]:
    """The checkpoint to write; raises OSError and ValueError."""
    where = f"--input {arguments.input}"
    if arguments.input.is_dir():
        if arguments.to == "official":
            raise ValueError(f"{where}: --to official turns a checkpoint of this package; this is a published one")
        given = read_consolidated(arguments.input)
        converted = convert_megalodon(given, str(arguments.input))
        pair = given, converted
    else:
        given = load_checkpoint(arguments.input)
        if arguments.to == "official" and is_megalodon(given):
            converted = publish_megalodon(given)
            pair = converted, convert_megalodon(converted, str(arguments.input))
        elif arguments.to == "official":
            converted = publish_checkpoint(given, str(arguments.input))
            pair = converted, convert_checkpoint(converted, str(arguments.input))
        elif is_ours(given) or is_megalodon(given):
            if arguments.verify:
                raise ValueError(f"{where}: --verify compares two layouts, and this is one of this package")
            return given
        else:
            converted = convert_checkpoint(given, str(arguments.input))
            pair = given, converted
    check_complete(pair[1]["args"], pair[1]["model"], where)
    if arguments.verify:
        print(f"largest difference of both layouts on random input: {largest_difference(*pair):.2g}", flush=True)
    return converted


def main(given: Optional[Sequence[str]] = None) -> int:
    """Run the command line; errors end it with exit status 2."""
    parser = build_parser()
    arguments = parser.parse_args(given)
    if not (arguments.input.is_file() or is_consolidated(arguments.input)):
        wanted = "holds no consolidate_config.json" if arguments.input.is_dir() else "does not exist"
        parser.error(f"--input {arguments.input} {wanted}")
    if arguments.output.exists():
        parser.error(f"--output {arguments.output} exists: give another name, or remove it first")
    try:
        converted = convert(arguments)
        (save_consolidated if "consolidation" in converted else save)(converted, arguments.output)
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(f"{len(converted['model'])} tensors written to {arguments.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
