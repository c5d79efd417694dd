"""Counts what became of planted defects: in words, and as a file that examples/kernels/README.md is compared with."""

import datetime
import json
import os
from pathlib import Path
from typing import Dict, List

import torch


def report(results: List[Dict[str, object]]) -> None:
    """Print the share that was caught per operator and kind of defect, and what survived."""
    for kind in sorted({(str(r["operator"]), str(r["name"])) for r in results}):
        some = [r["result"] for r in results if (r["operator"], r["name"]) == kind and r["result"] != "not compiled"]
        print(f"{kind[0]:14} {kind[1]:22} {some.count('caught'):3} of {len(some):3} noticed")
    valid = [r for r in results if r["result"] != "not compiled"]
    caught = sum(r["result"] == "caught" for r in valid)
    print(f"noticed {caught} of {len(valid)} ({len(results) - len(valid)} did not compile)")
    for r in valid:
        if r["result"] == "survived":
            print(f"survived: {r['file']}:{r['line']}  {r['name']}: {r['before']}")


def summarise(results: List[Dict[str, object]], planted: Dict[str, int], path: Path) -> None:
    """Enter the shares of operators in a JSON file, beside those that are there.

    Args:
        results: what became of the defects that were tried.
        planted: how many there are of each operator, tried or not.
        path: of the file.
    """
    summary = json.loads(path.read_text()) if path.exists() else {}
    for operator, total in planted.items():
        valid = [r for r in results if r["operator"] == operator and r["result"] != "not compiled"]
        survivors = [r for r in valid if r["result"] == "survived"]
        summary[operator] = {
            "noticed": len(valid) - len(survivors),
            "tried": len(valid),
            "not compiled": sum(r["operator"] == operator and r["result"] == "not compiled" for r in results),
            "planted": total,
            "command": f"python -m tests.simulator.planted_defects --only {operator}",
            "date": datetime.date.today().isoformat(),
            "torch": torch.__version__,
            "machine": f"{os.cpu_count()}-core CPU",
            "survivors": [f"{r['file']}:{r['line']}  {r['name']}: {r['before']}" for r in survivors],
        }
    path.write_text(json.dumps(summary, indent=1, sort_keys=True) + "\n")
