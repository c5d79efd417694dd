"""Tables of ``python -m fairseq_mega.lab.benchmarks peers``: models of this package and other implementations."""

from pathlib import Path
from typing import Dict, List, Sequence

from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.text_tables import Table, table_of

from .numbers import by_subject, ratio

TITLES = {
    "megalodon-jax": "MEGALODON, megalodon-jax",
    "megalodon-published": "MEGALODON, ours in the published arrangement",
    "transformers": "MEGA-chunk, transformers",
    "mega-published": "MEGA-chunk, ours in the published arrangement",
    "mega-pytorch": "MEGA, full attention, mega-pytorch",
}


def beside(folder: Path, words: Sequence[str]) -> Table:
    """Return a table with a row for each peer and shape of several result files, with speed and memory relative to
    ours.
    """
    rows: Dict[str, List[Dict[str, str]]] = {}
    for file in words:
        for subject, points in by_subject(read_result(folder / file)["scores"], "L").items():
            name, _, batch = subject.partition(", batch ")
            for length, point in points.items():
                if "speed" not in point:  # ours
                    continue
                tokens, speed, memory = int(batch) * length, point["speed"], point["memory"]
                rows.setdefault(name, []).append(
                    {
                        "beside": TITLES.get(name, name),
                        "batch x L": f"{batch} x {length:,}",
                        "its parameters": f"{point['parameters']:,.0f}",
                        "ours, tokens/s": f"{tokens * speed / point['seconds']:,.0f}",
                        "its": f"{tokens / point['seconds']:,.0f}",
                        "speed": ratio(speed),
                        "ours, peak MiB": f"{point['memory_mib'] * memory:,.0f}",
                        "its peak": f"{point['memory_mib']:,.0f}",
                        "memory": ratio(memory),
                    }
                )
    return table_of([row for of_peer in rows.values() for row in of_peer])
