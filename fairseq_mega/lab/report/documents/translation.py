"""Tables of translation: scores of small models on their test sets."""

import shlex
from pathlib import Path
from typing import Any, Dict, Sequence

from fairseq_mega.lab.runs.results import read_results
from fairseq_mega.lab.runs.text_tables import Table, table_of

SCHEDULES = {"inverse_sqrt": "inverse square root", "linear_decay": "linear decay"}


def option_of(command: str, name: str) -> str:
    """Return the value of an option in a command line; empty without the option."""
    words = shlex.split(command)
    return words[words.index(name) + 1] if name in words[:-1] else ""


def test_sets(folder: Path, words: Sequence[str]) -> Table:
    """Table of BLEU of each training of a benchmark, with a column for each test set; a set's best score is bold."""
    name, benchmark = words
    found: Dict[str, Dict[str, Any]] = {}
    for result in read_results(folder / name, benchmark):
        found.setdefault(result["label"], {})[result["settings"]["test"]] = result
    sets = sorted({test for tests in found.values() for test in tests})
    best = {test: max(tests[test]["scores"]["sacrebleu"] for tests in found.values() if test in tests) for test in sets}
    rows = []
    for label, tests in sorted(found.items(), key=lambda item: (item[0].startswith("mega"), item[0])):
        result = next(iter(tests.values()))
        command = result["command"]
        schedule = SCHEDULES.get(option_of(command, "--lr-scheduler"), option_of(command, "--lr-scheduler"))
        warmup = option_of(command, "--warmup-updates")
        rate = f"{float(option_of(command, '--lr')):g}, {schedule}, {warmup} warm-up updates"
        model = "MEGA" if label.startswith("mega") else "Transformer"
        cells = {}
        for test in sets:
            value = tests[test]["scores"]["sacrebleu"] if test in tests else None
            text = "" if value is None else f"{value:.1f}"
            cells[test] = f"**{text}**" if value == best[test] else text
        rows.append({"model": f"{model}, seed {result['seed']}", "learning rate": rate, **cells})
    return table_of(rows)
