"""The unit of a text, left beside its binarised data for :mod:`fairseq_mega.data.text_units` to read."""

import shutil
from pathlib import Path
from typing import Optional

from fairseq_mega.data.text_units import MODEL_FILE, UNIT_FILE
from fairseq_mega.lab.runs.files import write_json


def write_unit(folder: Path, unit: str, model: Optional[Path] = None) -> None:
    """Write ``unit.json`` to a folder of binarised data, and copy the model of subwords there."""
    if model is not None:
        shutil.copyfile(model, folder / MODEL_FILE)
    write_json(folder / UNIT_FILE, {"unit": unit})
