"""Read the output of fairseq-generate sentence by sentence."""

import re
from pathlib import Path
from typing import Dict, List, Sequence

OUTPUT_LINE = re.compile(r"([HDT])-(\d+)\t(.*)", re.DOTALL)


class ScoringError(ValueError):
    """The translations cannot be scored; the message names the file, the fault and the remedy."""


def read_lines(path: str, what: str) -> List[str]:
    """Return the lines of the UTF-8 text file ``path``, split at line feeds only, without its byte-order mark.

    Raises :class:`ScoringError`, naming ``what``, if the file is missing or not UTF-8.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ScoringError(f"{what} {path}: {error.strerror or error}; check the path") from error
    except UnicodeDecodeError as error:
        raise ScoringError(f"{what} {path}: byte {error.start} is not UTF-8; convert the file first") from error
    lines = text.split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def parse_generation(lines: Sequence[str], where: str) -> Dict[str, Dict[int, str]]:
    """Sort the lines of ``fairseq-generate`` by kind: ``{"H": {id: text}, "D": ..., "T": ...}``.

    ``H`` is the hypothesis, ``D`` the hypothesis without BPE and tokenisation, ``T`` the reference. Raises
    :class:`ScoringError` for an id that occurs twice within one kind.
    """
    found: Dict[str, Dict[int, str]] = {"H": {}, "D": {}, "T": {}}
    for number, line in enumerate(lines, start=1):
        match = OUTPUT_LINE.fullmatch(line)
        if match is None:
            continue
        kind, index, text = match.group(1), int(match.group(2)), match.group(3)
        if kind != "T":
            _score, separator, text = text.partition("\t")
            if not separator:
                raise ScoringError(f"{where}: line {number} has no text column: {line!r}; generate it again")
        if index in found[kind]:
            raise ScoringError(
                f"{where}: line {number}: sentence {index} has a second {kind}- line; generate with --nbest 1 and "
                "do not append one run's output to another's"
            )
        found[kind][index] = text
    return found


def in_order(texts: Dict[int, str], expected: int, where: str, kind: str) -> List[str]:
    """Return the ``expected`` texts in order of id; raise :class:`ScoringError` for any other number of them."""
    missing = [index for index in range(expected) if index not in texts]
    surplus = sorted(index for index in texts if index >= expected)
    if missing or surplus:
        details = [f"{len(missing)} missing (first: {missing[0]})"] if missing else []
        details += [f"{len(surplus)} beyond the last id {expected - 1} (first: {surplus[0]})"] if surplus else []
        raise ScoringError(
            f"{where}: {len(texts)} {kind}- lines found, --expect is {expected}: {', '.join(details)}; generate the "
            "whole test set with --required-batch-size-multiple 1, and without --skip-invalid-size-inputs-valid-test, "
            "which leaves out sentences longer than --max-source-positions or --max-target-positions: shorten or "
            "split these"
        )
    return [texts[index] for index in range(expected)]


def expect_lines(lines: Sequence[str], expected: int, option: str, path: str) -> List[str]:
    """Return ``lines`` if there are ``expected`` of them, else raise :class:`ScoringError`."""
    if len(lines) != expected:
        raise ScoringError(f"{option} {path} has {len(lines)} lines, --expect is {expected}; give matching files")
    return list(lines)
