"""The yaml presets for fairseq-hydra-train are the architectures of the command line."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

import fairseq_mega
from fairseq_mega.models.mega_classifier_config import CLASSIFIER_PRESETS
from fairseq_mega.models.mega_config import PRESETS
from fairseq_mega.models.mega_lm_config import LM_PRESETS
from fairseq_mega.models.transformer_classifier import TRANSFORMER_PRESETS
from tests.support.helpers import make_parallel_corpus

FOLDER = Path(fairseq_mega.__file__).parent / "presets"
ALL = {name: ("mega", values) for name, values in PRESETS.items()}
ALL.update({name: ("mega_lm", values) for name, values in LM_PRESETS.items()})
ALL.update({name: ("mega_lra", values) for name, values in CLASSIFIER_PRESETS.items()})
ALL.update({name: ("transformer_lra", values) for name, values in TRANSFORMER_PRESETS.items()})

# What a person writes for a run of their own; "model=..." then names a preset.
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


def test_each_architecture_has_its_preset():
    assert {path.stem for path in (FOLDER / "model").glob("*.yaml")} == set(ALL)


@pytest.mark.parametrize("name", ALL)
def test_presets_equal_architectures(name):
    model, values = ALL[name]
    text = (FOLDER / "model" / f"{name}.yaml").read_text()
    assert text.startswith("# @package model\n")
    assert yaml.safe_load(text) == {"_name": model, **values}


@pytest.mark.slow
def test_hydra_trains_a_preset(tmp_path):
    data = make_parallel_corpus(tmp_path / "corpus", sentences=5)
    config = tmp_path / "config"
    config.mkdir()
    (config / "run.yaml").write_text(RUN)
    (config / "model").symlink_to(FOLDER / "model")
    command = [sys.executable, "-c", "from fairseq_cli.hydra_train import cli_main; cli_main()"]
    command += ["--config-dir", str(config), "--config-name", "run", f"common.user_dir={FOLDER.parent}"]
    command += [f"task.data={data}", f"checkpoint.save_dir={tmp_path / 'checkpoints'}", "model.encoder_layers=1"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    saved = torch.load(tmp_path / "checkpoints" / "checkpoint_last.pt")
    assert saved["cfg"]["model"]["encoder_embed_dim"] == 64 and saved["cfg"]["model"]["encoder_layers"] == 1
    assert sum("encoder.layers.1." in key for key in saved["model"]) == 0
