"""A training by fairseq-hydra-train."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Sequence


def start(
    configurations: Path, name: str, settings: Sequence[str], folder: Path, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Train with a configuration and settings that replace parts of it, in any folder."""
    command = [sys.executable, "-m", "fairseq_cli.hydra_train"]
    command += ["--config-dir", str(configurations), "--config-name", name, *settings]
    surroundings = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=surroundings)
