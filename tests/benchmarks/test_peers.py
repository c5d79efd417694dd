"""Language models beside other implementations of them, each in an environment of its own."""

import json
import shlex
from pathlib import Path
from typing import Any, Dict

import pytest

from fairseq_mega.lab.benchmarks import command, peers
from fairseq_mega.lab.benchmarks.peers_worker import BUILDERS
from fairseq_mega.lab.report.benchmark_tables import peers as table_of_peers
from fairseq_mega.lab.runs.results import read_result

# A peer that answers without a model.
ANSWER = {"losses": [2.0, 1.0], "versions": {"peer": "1.0"}, "memory_mib": 64.0, "seconds": 100.0}
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
    path = folder / "python"
    path.write_text(
        f"#!/bin/sh\necho {shlex.quote(json.dumps({**ANSWER, 'parameters': parameters}))}\n", encoding="utf-8"
    )
    path.chmod(0o755)
    return path


def run(*given: str) -> None:
    command.main(["peers", "--smoke", "--peers", "transformers", *given])


def answer_of(model: str) -> Dict[str, Any]:
    """Return the answer of a model's process."""
    given = ["peers", "--width", "32", "--layers", "1", "--chunk", "16", "--symbols", "40", "--repeat", "1"]
    return peers.measure(command.parse(given), model, 2, 32)


def test_a_model_of_ours_beside_a_peer(tmp_path, capfd):
    file = tmp_path / "peers.json"
    run("--json", str(file), "--python", f"transformers={program(tmp_path)}")
    assert "| transformers, batch 2 L=32 | 2,074,560 | 100,000.00 | 64 | " in capfd.readouterr().out
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
    assert "transformers, batch 2 L=32 has 3 parameters" in capfd.readouterr().err


def test_a_peer_that_is_not_installed_is_omitted(tmp_path, capsys):
    command.main(["peers", "--smoke", "--peers", "megalodon-jax", "--json", str(tmp_path / "ours.json")])
    assert "megalodon-jax, batch 2 L=32: skipped" in capsys.readouterr().out
    assert set(read_result(tmp_path / "ours.json")["peers"]) == {"megalodon"}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mega", "megalodon"])
def test_models_of_ours_train(model: str) -> None:
    """The published arrangement has the parameters of ours."""
    ours, published = map(answer_of, (model, f"{model}-published"))
    assert ours["losses"] == sorted(ours["losses"], reverse=True) and ours["parameters"] == published["parameters"]
    assert ours["seconds"] > 0 and ours["memory_mib"] >= 0


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("self.table(tokens)", ""),
        ("self.table(tokens).detach()", "have been used in the graph"),
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
            answer_of("mega-pytorch")
        assert message in capfd.readouterr().err
    else:
        found = answer_of("mega-pytorch")
        assert found["parameters"] == 40 * 32 + 33 * 40 and found["versions"]["mega-pytorch"] == "9"
        assert found["seconds"] > 0


def test_every_model_has_a_builder():
    assert set(BUILDERS) == {*peers.PEERS, *(peer.ours for peer in peers.PEERS.values())}
