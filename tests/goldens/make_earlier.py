"""Make earlier.tar.xz: data folders, checkpoints and numbers by the commit whose root is in PYTHONPATH.

    git worktree add /tmp/checkout 61b281c
    PYTHONPATH=/tmp/checkout FAIRSEQ_MEGA_NATIVE=off python tests/goldens/make_earlier.py tests/goldens/earlier.tar.xz

Each kind of training runs for two updates within its first epoch, its checkpoint is kept, and two more updates are
recorded with the validation after them. `earlier.json` in the archive holds folders, arguments and numbers.
"""

import json
import os
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Dict

os.environ.setdefault("OMP_NUM_THREADS", "1")

from tests.support import helpers, tiny_trainings

KINDS = ("language model", "megalodon", "text", "image", "translation")
PLAIN = ("--dropout", 0, "--save-interval-updates", 0, "--no-epoch-checkpoints", "--seed", 3)


def train(kind: str, data: tiny_trainings.Trainings, folder: Path) -> Dict[str, Any]:
    """Train in `folder` and return what a test has to know."""
    save = folder / "checkpoints"
    arguments = data.arguments(kind, *PLAIN)
    helpers.run_fairseq("train", [*arguments, "--save-dir", save, "--max-update", 2])
    kept = folder / f"{kind.replace(' ', '_')}.pt"
    shutil.copy(save / "checkpoint_last.pt", kept)
    helpers.forget_earlier_runs()
    output = helpers.run_fairseq("train", [*arguments, "--save-dir", save, "--max-update", 4])
    helpers.forget_earlier_runs()
    shutil.rmtree(save)
    place = str(Path(str(arguments[0])).relative_to(folder))
    options = [str(argument) for argument in arguments[1:]]
    return {"data": place, "options": options, "checkpoint": kept.name, "numbers": tiny_trainings.numbers(output)}


def main(archive: Path) -> None:
    """Write the archive."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = tiny_trainings.Trainings(folder)
        recorded = {kind: train(kind, data, folder) for kind in KINDS}
        (folder / "earlier.json").write_text(json.dumps(recorded, indent=1))
        with tarfile.open(archive, "w:xz") as packed:
            for path in sorted(folder.rglob("*")):
                if path.is_file() and path.suffix != ".log":
                    packed.add(path, path.relative_to(folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
