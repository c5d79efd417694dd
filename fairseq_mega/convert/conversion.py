"""Conversion of one checkpoint as ``fairseq-mega-convert`` requests it."""

import argparse
import sys
from typing import Any, Dict

from fairseq_mega.compat.files.settings import other_settings
from fairseq_mega.convert import layouts
from fairseq_mega.convert.building import check_complete
from fairseq_mega.convert.options import flat_options
from fairseq_mega.convert.verifying import verify

PADDED = (
    "This translator was trained without --published-source-padding: in a batch of unequal lengths the published code "
    "counts padding into the positions of its sources, and translates worse; translate one sentence at a time there."
)

WINDOW = (
    "This model computes the norms' statistics over the whole text, the published code at test time over the last 6 to "
    "8 chunks, as --statistics-window 6 does here."
)


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
