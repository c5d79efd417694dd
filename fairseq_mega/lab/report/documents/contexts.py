"""The longest contexts of training steps, as ``fairseq-mega-inspect --memory`` finds them."""

from pathlib import Path
from typing import Sequence

from fairseq_mega.lab.inspect.memory import model_of
from fairseq_mega.lab.runs.text_tables import Table, table_of
from fairseq_mega.models.cost import GIB

MEMORIES = (16, 24, 40, 80)  # GiB


def longest(folder: Path, words: Sequence[str]) -> Table:
    """Table with a row for each word ARCHITECTURE:SYMBOLS, or ARCHITECTURE:SYMBOLS:bf16 for autocast to bfloat16."""
    rows = []
    for word in words:
        name, symbols, *precision = word.split(":")
        step = model_of(name, int(symbols), precision == ["bf16"]).step
        rows.append(
            {
                "`--arch`": f"`{name}`" + (", bfloat16" if precision else ""),
                "symbols": f"{int(symbols):,}",
                "training state": f"{step.state / GIB:.1f} GiB",
                "per token": f"{step.token / 1024:,.0f} KiB",
                **{f"{memory} GiB": f"{step.context(memory * GIB):,}" for memory in MEMORIES},
            }
        )
    return table_of(rows)
