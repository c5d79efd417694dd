"""Language models beside other implementations of them, each in an environment of its own."""

import shlex
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from fairseq_mega.lab.benchmarks import command, peers
from fairseq_mega.lab.benchmarks.peers_worker import BUILDERS
from fairseq_mega.lab.report.benchmark_tables import peers as table_of_peers
from fairseq_mega.lab.runs.results import read_result

TINY = {"width": 32, "layers": 1, "chunk": 16, "symbols": 40, "batch": 2, "length": 32, "threads": 1, "seed": 1}
# A peer that answers without a model.
ANSWERS = """
import json, sys
sys.stdin.readline()
print(json.dumps({{"parameters": {parameters}, "losses": [2.0, 1.0], "versions": {{"peer": "1.0"}}}}), flush=True)
for line in sys.stdin:
    print(json.dumps({{"memory_mib": 64.0, "seconds": 100.0}}), flush=True)
"""
# The package mega_pytorch with another model.
MEGA_PYTORCH = """
import torch
class Mega(torch.nn.Module):
    def __init__(self, dim, num_tokens, **_):
        super().__init__()
        self.table = torch.nn.Embedding(num_tokens, dim)
        self.output = torch.nn.Linear(dim, num_tokens)
    def forward(self, tokens):
        return self.output({inputs})
"""


def program(folder: Path, parameters: int = 2_074_560) -> Path:
    path, script = folder / "python", folder / "answers.py"
    script.write_text(ANSWERS.format(parameters=parameters), encoding="utf-8")
    words = shlex.join([sys.executable, str(script)])  # the first line of a script cannot name a folder with a space
    path.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def run(*given: str) -> None:
    command.main(["peers", "--smoke", "--peers", "transformers", *given])


def answers_of(model: str) -> "List[Dict[str, Any]]":
    """Return the first two answers of a model's process."""
    with peers.worker(sys.executable, {**TINY, "model": model}, False) as request:
        return [request(), request()]


def test_a_model_of_ours_beside_a_peer(tmp_path, capfd):
    file = tmp_path / "peers.json"
    run("--json", str(file), "--python", f"transformers={program(tmp_path)}")
    assert "| transformers | 2 x 32 | 2,074,560 | 1 | " in capfd.readouterr().out
    result = read_result(file)
    scores, ours, peer = result["scores"], "mega, batch 2 L=32", "transformers, batch 2 L=32"
    assert scores[f"{ours} parameters"] == 2_074_560 and scores[f"{ours} memory_mib"] > 0
    assert scores[f"{peer} speed"] == 100.0 / scores[f"{ours} seconds"] > 10.0
    assert scores[f"{peer} memory"] == scores[f"{ours} memory_mib"] / 64.0
    assert result["peers"]["transformers"] == {"peer": "1.0"} and "torch" in result["peers"]["mega"]
    assert "python" not in result["settings"]
    (row,) = table_of_peers(tmp_path, ["peers.json"]).rows
    assert row[:2] == ["MEGA-chunk, transformers", "2 x 32"] and row[4] == "1"


def test_a_peer_of_another_size_is_refused(tmp_path, capfd):
    with pytest.raises(SystemExit):
        run("--python", f"transformers={program(tmp_path, parameters=3)}")
    assert "transformers has 3 parameters" in capfd.readouterr().err


def test_a_peer_that_is_not_installed_is_omitted(tmp_path, capsys):
    command.main(["peers", "--smoke", "--peers", "megalodon-jax", "--json", str(tmp_path / "ours.json")])
    assert "megalodon-jax is skipped" in capsys.readouterr().err
    assert set(read_result(tmp_path / "ours.json")["peers"]) == {"megalodon"}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mega", "megalodon"])
def test_models_of_ours_train(model):
    """The published arrangement has the parameters of ours."""
    (ours, step), (published, _) = map(answers_of, (model, f"{model}-published"))
    assert ours["losses"] == sorted(ours["losses"], reverse=True) and ours["parameters"] == published["parameters"]
    assert step["seconds"] > 0 and step["memory_mib"] >= 0


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("self.table(tokens)", ""),
        ("self.table(tokens).detach()", "1 of its parameters get no gradient"),
        # A table with eleven times its gradient.
        ("11 * self.table(tokens) - 10 * self.table(tokens).detach()", "do not fall as the gradients predict"),
    ],
)
def test_a_peer_whose_gradients_are_wrong_is_refused(inputs, message, tmp_path, monkeypatch, capfd):
    (tmp_path / "mega_pytorch.py").write_text(MEGA_PYTORCH.format(inputs=inputs))
    folder = tmp_path / "mega_pytorch-9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: mega-pytorch\nVersion: 9\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # without this package: a peer needs its own alone
    if message:
        with pytest.raises(ValueError, match="mega-pytorch ended"):
            answers_of("mega-pytorch")
        assert message in capfd.readouterr().err
    else:
        ready, step = answers_of("mega-pytorch")
        assert ready["parameters"] == 40 * 32 + 33 * 40 and ready["versions"]["mega-pytorch"] == "9"
        assert step["seconds"] > 0


def test_every_model_has_a_builder():
    assert set(BUILDERS) == {*peers.PEERS, *(peer.ours for peer in peers.PEERS.values())}
