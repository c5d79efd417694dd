"""Compare binarised data with their text, and with the published counts."""

import json
import shutil
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

from fairseq_mega.compat.files.binarised import MANY_UNKNOWN
from fairseq_mega.data.card import UNIT, write_settings
from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.prepare.binarised import FILES, binarised_counts
from fairseq_mega.lab.prepare.language_modeling.published import Corpus
from fairseq_mega.lab.prepare.language_modeling.splitting import COUNTS
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.splits import SPLITS


def expected_counts(
    text: Path, threshold: int, published: Optional[Corpus]
) -> List[Tuple[str, Dict[str, Dict[str, int]], Optional[int]]]:
    """Return the expectations: the source of each, lines and tokens per split, the dictionary's size or None."""
    splits = json.loads((text / COUNTS).read_text(encoding="utf-8"))["splits"]
    wanted = {split: {key: counts[key] for key in ("lines", "tokens")} for split, counts in splits.items()}
    size = None
    if not threshold:
        size = -(-(4 + splits["train"]["symbols"]) // 8) * 8  # fairseq pads to a multiple of 8
    expected = [(f"the text in {text}", wanted, size)]
    if published is not None:
        expected.append((f"{published.name} as published", published.counts(), published.dictionary))
    return expected


def unknown_share(counts: Mapping[str, int]) -> float:
    """Return the share of ``<unk>`` among the tokens of a split, without the ``</s>`` of each line."""
    return counts["unknown"] / max(1, counts["tokens"] - counts["lines"])


def note_unknown_words(splits: Mapping[str, Mapping[str, int]], unit: str) -> None:
    """Print a note on each split with many ``<unk>``, which make its perplexity lower than the perplexity of the text.

    Args:
        splits: counts of each split.
        unit: of the tokens.
    """
    remedy = "train on text that has them" if unit == "bytes" else "to keep them, give --unit subwords or --unit bytes"
    tokens = unit if unit == "bytes" else "words"
    for split, counts in splits.items():
        if unknown_share(counts) > MANY_UNKNOWN:
            say(
                f"note: {split}: {100 * unknown_share(counts):.0f} % of the {tokens} are <unk>, one symbol for all of "
                f"them: {remedy}"
            )


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

    for name in FILES:
        if not (data / name).is_file():
            raise FileNotFoundError(f"{data / name} does not exist; binarise the text again")
    dictionary = Dictionary.load(str(data / "dict.txt"))
    splits, problems = {}, []
    for split in SPLITS:
        splits[split], wrong = binarised_counts(data, split, dictionary)
        problems += wrong
    for who, wanted, size in [] if problems else expected_counts(text, threshold, published):
        for split, counts in wanted.items():
            for name, want in counts.items():
                if splits[split][name] != want:
                    problems.append(f"{split}: expected {want} {name} ({who}), found {splits[split][name]}")
        if size not in (None, len(dictionary)):
            problems.append(f"dict.txt: expected a dictionary of {size} ({who}), found {len(dictionary)}")
    if problems:
        raise ValueError(f"{data}: " + "; ".join(problems))
    for split, found in splits.items():
        say(
            f"{split}: {found['lines']} lines, {found['tokens']} tokens with one </s> per line, "
            f"{100 * unknown_share(found):.2f} % <unk> without these"
        )
    say(f"dictionary: {len(dictionary)} symbols, the special ones and fairseq's padding included")
    written = json.loads((text / COUNTS).read_text(encoding="utf-8"))
    write_unit(data, written["unit"], text / MODEL_FILE if written["unit"] == "subwords" else None)
    for split in SPLITS:
        splits[split]["bytes"] = written["splits"][split]["bytes"]
    return {"unit": written["unit"], "dictionary": len(dictionary), "splits": splits}


def write_unit(folder: Path, unit: str, model: Optional[Path] = None) -> None:
    """Write the unit of a text, and its subwords, beside its binarised data, for fairseq_mega.data.text_units."""
    if model is not None:
        shutil.copyfile(model, folder / MODEL_FILE)
    write_settings(folder, {UNIT: unit})
