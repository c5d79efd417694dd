"""Compare binarised data with their text, and with the published counts."""

import json
import shutil
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

from fairseq_mega.data.card import UNIT, write_settings
from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.prepare.binarised import binarised_counts
from fairseq_mega.lab.prepare.language_modeling.published import Corpus
from fairseq_mega.lab.prepare.language_modeling.splitting import COUNTS
from fairseq_mega.lab.prepare.progress import print_line


def expected_counts(
    written: Dict[str, Dict[str, int]], threshold: int, published: Optional[Corpus]
) -> List[Tuple[str, Dict[str, Dict[str, int]], Optional[int]]]:
    """Return the expectations: the source of each, lines and tokens per split, the dictionary's size or None."""
    of_text = {split: {key: counts[key] for key in ("lines", "tokens")} for split, counts in written.items()}
    # fairseq pads to a multiple of 8
    size = None if threshold else -(-(4 + written["train"]["symbols"]) // 8) * 8
    expected = [("the text", of_text, size)]
    if published is not None:
        expected.append((f"{published.name} as published", published.counts(), published.dictionary))
    return expected


def count(data: Path, text: Path, threshold: int = 0, published: Optional[Corpus] = None) -> Dict[str, Any]:
    """Compare binarised data with their text and with published counts, and write their unit beside them.

    Args:
        data: output of fairseq-preprocess.
        text: output of :func:`.splitting.split_text`.
        threshold: rarer words have become ``<unk>``.

    Returns:
        Unit, size of the dictionary, and the counts of each split.

    Raises:
        OSError, ValueError: for a difference.
    """
    from fairseq.data import Dictionary

    dictionary = Dictionary.load(str(data / "dict.txt"))
    written = json.loads((text / COUNTS).read_text(encoding="utf-8"))
    splits = {split: binarised_counts(data, split, dictionary) for split in written["splits"]}
    for source, expected, size in expected_counts(written["splits"], threshold, published):
        for split, counts in expected.items():
            for name, total in counts.items():
                if splits[split][name] != total:
                    raise ValueError(
                        f"{data}: {split}: expected {total} {name} ({source}), found {splits[split][name]}"
                    )
        if size not in (None, len(dictionary)):
            raise ValueError(f"{data}: expected a dictionary of {size} ({source}), found {len(dictionary)}")
    for split, found in splits.items():
        found["bytes"] = written["splits"][split]["bytes"]
        share = found["unknown"] / max(1, found["tokens"] - found["lines"])
        print_line(
            f"{split}: {found['lines']} lines, {found['tokens']} tokens with one </s> per line, "
            f"{100 * share:.2f} % <unk> without these"
        )
    print_line(f"dictionary: {len(dictionary)} tokens, the special ones and fairseq's padding included")
    write_unit(data, written["unit"], text / MODEL_FILE if written["unit"] == "subwords" else None)
    return {"unit": written["unit"], "dictionary": len(dictionary), "splits": splits}


def write_unit(folder: Path, unit: str, model: Optional[Path] = None) -> None:
    """Write the unit of a text, and its subwords, beside its binarised data, for fairseq_mega.data.text_units."""
    if model is not None:
        shutil.copyfile(model, folder / MODEL_FILE)
    write_settings(folder, {UNIT: unit})
