"""Compare binarised data with the text that they were made of, and with the published counts."""

import argparse
import json
from typing import Dict, List, Optional, Tuple

from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.prepare.binarised import binarised_counts
from fairseq_mega.lab.prepare.language_modeling.published import CORPORA
from fairseq_mega.lab.prepare.language_modeling.splitting import COUNTS
from fairseq_mega.lab.prepare.language_modeling.unit_file import write_unit
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.splits import SPLITS
from fairseq_mega.lab.runs.files import write_json


def expected_counts(args: argparse.Namespace) -> List[Tuple[str, Dict[str, Dict[str, int]], Optional[int]]]:
    """Return the expectations: where each comes from, lines and tokens per split, the dictionary's size or None."""
    expected = []
    text = json.loads((args.text / COUNTS).read_text(encoding="utf-8"))
    wanted = {split: {key: counts[key] for key in ("lines", "tokens")} for split, counts in text["splits"].items()}
    size = None
    if not args.threshold:
        size = -(-(4 + text["splits"]["train"]["symbols"]) // 8) * 8  # fairseq pads to a multiple of 8
    expected.append((f"the text in {args.text}", wanted, size))
    if args.corpus:
        corpus = CORPORA[args.corpus]
        expected.append((f"{corpus.name} as published", corpus.counts(), corpus.dictionary))
    return expected


def command_count(args: argparse.Namespace) -> None:
    """Compare the binarised data with the text it was made of and with published counts, and leave its unit there."""
    from fairseq.data import Dictionary

    for name in ("dict.txt", *(f"{split}.{kind}" for split in SPLITS for kind in ("bin", "idx"))):
        if not (args.data / name).is_file():
            raise FileNotFoundError(f"{args.data / name} does not exist; binarise the text again")
    dictionary = Dictionary.load(str(args.data / "dict.txt"))
    splits, problems = {}, []
    for split in SPLITS:
        splits[split], wrong = binarised_counts(args.data, split, dictionary)
        problems += wrong
    for who, wanted, size in [] if problems else expected_counts(args):
        for split, counts in wanted.items():
            for name, want in counts.items():
                if splits[split][name] != want:
                    problems.append(f"{split}: expected {want} {name} ({who}), found {splits[split][name]}")
        if size not in (None, len(dictionary)):
            problems.append(f"dict.txt: expected a dictionary of {size} ({who}), found {len(dictionary)}")
    if problems:
        raise ValueError(f"{args.data}: " + "; ".join(problems))
    for split, found in splits.items():
        say(
            f"{split}: {found['lines']} lines, {found['tokens']} tokens with one </s> per line, "
            f"{100 * found['unknown'] / found['tokens']:.2f} % <unk>"
        )
    say(f"dictionary: {len(dictionary)} symbols, the special ones and fairseq's padding included")
    text = json.loads((args.text / COUNTS).read_text(encoding="utf-8"))
    write_unit(args.data, text["unit"], args.text / MODEL_FILE if text["unit"] == "subwords" else None)
    if args.json is not None:
        for split in SPLITS:
            splits[split]["bytes"] = text["splits"][split]["bytes"]
        write_json(args.json, {"unit": text["unit"], "dictionary": len(dictionary), "splits": splits})
