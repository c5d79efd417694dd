"""A training by fairseq-hydra-train."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Sequence

from fairseq_mega.models import presets

# A person's configuration of a run; "model=..." then names a preset.
RUN = """# @package _global_
defaults: [_self_, {model: mega_tiny}]
common: {cpu: true, log_format: simple, user_dir: "???"}
task: {_name: translation, data: "???", source_lang: en, target_lang: de}
criterion: {_name: label_smoothed_cross_entropy, label_smoothing: 0.1}
dataset: {max_tokens: 400, num_workers: 0}
optimizer: {_name: adam, adam_betas: "(0.9,0.98)"}
lr_scheduler: {_name: linear_decay, warmup_updates: 1}
optimization: {lr: [0.001], max_update: 3}
checkpoint: {save_dir: "???"}
hydra: {run: {dir: .}}
"""


def write(folder: Path) -> Path:
    """Make a folder of configurations; returns it."""
    folder.mkdir()
    (folder / "run.yaml").write_text(RUN)
    (folder / "model").symlink_to(presets.FOLDER)
    return folder


def run(folder: Path, data: Path, settings: Sequence[str], **environment: str) -> "subprocess.CompletedProcess[str]":
    """Train with settings such as ``model.encoder_layers=1``, in the folder of configurations."""
    settings = [
        f"task.data={data}",
        "checkpoint.save_dir=out",
        f"common.user_dir={presets.FOLDER.parents[1]}",
        *settings,
    ]
    return start(folder, "run", settings, folder, **environment)


def start(
    configurations: Path, name: str, settings: Sequence[str], folder: Path, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Train with a configuration and settings that replace parts of it, in any folder."""
    command = [sys.executable, "-m", "fairseq_cli.hydra_train"]
    command += ["--config-dir", str(configurations), "--config-name", name, *settings]
    surroundings = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=surroundings)
