"""Origin of results: seed, data, machine, revision and date."""

from typing import Sequence

from fairseq_mega.lab.runs.results import Result
from fairseq_mega.lab.runs.text_tables import Table, table_of


def machine_of(result: Result) -> str:
    """Return the GPUs of the training or measurement, or the processor."""
    hardware, settings = result["hardware"], result.get("settings", {})
    gpus = settings.get("trained_on", hardware.get("gpus"))
    if gpus == "cpu" or not gpus:
        return f"{hardware.get('processor', 'CPU')}, {hardware.get('cores', '?')} cores"
    return f"{len(gpus)} x {gpus[0]}"


def revision_of(result: Result) -> str:
    """Return the shortened commit, marked if files were modified."""
    commit, dash, rest = (result.get("git_revision") or "-").partition("-")
    return (commit[:8] + dash + rest) or "-"


def provenance(results: Sequence[Result]) -> Table:
    """Return a row for each result."""
    rows = []
    for result in results:
        settings = result.get("settings", {})
        name = str(settings.get("recipe") or result["label"])
        seed = f"{name}, seed {result['seed']}" if result.get("seed") is not None else name
        rows.append(
            {
                "measured": seed,
                "data": str(settings.get("data", "-")),
                "machine": machine_of(result),
                "revision": revision_of(result),
                "date": result["date"][:10],
            }
        )
    return table_of(rows)
