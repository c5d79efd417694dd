"""MEGALODON beside another implementation of it, each in an environment of its own."""

import json
import shlex
from pathlib import Path
from typing import List, Sequence, Tuple

import pytest
import torch

from fairseq_mega.lab.benchmarks import command
from fairseq_mega.lab.benchmarks.peers_worker import Training, warm_up
from fairseq_mega.lab.report.benchmark_tables import TABLES
from fairseq_mega.lab.runs.results import read_result

# A peer that answers without a model.
ANSWER = {"losses": [2.0, 1.0], "versions": {"peer": "1.0"}, "memory_mib": 64.0, "seconds": 100.0}


def program(folder: Path, parameters: int = 2_073_792) -> Path:
    path = folder / "python"
    path.write_text(
        f"#!/bin/sh\necho {shlex.quote(json.dumps({**ANSWER, 'parameters': parameters}))}\n", encoding="utf-8"
    )
    path.chmod(0o755)
    return path


def run(*given: str) -> None:
    command.main(["peers", "--smoke", *given])


def test_a_model_of_ours_beside_a_peer(tmp_path, capfd):
    file = tmp_path / "peers.json"
    run("--json", str(file), "--python", f"megalodon-jax={program(tmp_path)}")
    assert "| megalodon-jax, batch 2 L=32 | 2,073,792 | 100,000.00 | 64 | " in capfd.readouterr().out
    result = read_result(file)
    scores, ours, peer = result["scores"], "megalodon, batch 2 L=32", "megalodon-jax, batch 2 L=32"
    assert scores[f"{ours} parameters"] == 2_073_792 and scores[f"{ours} memory_mib"] > 0
    losses = result["losses"][ours]
    assert losses == sorted(losses, reverse=True)
    assert scores[f"{peer} speed"] == 100.0 / scores[f"{ours} seconds"] > 10.0
    assert scores[f"{peer} memory"] == scores[f"{ours} memory_mib"] / 64.0
    assert result["peers"]["megalodon-jax"] == {"peer": "1.0"} and "torch" in result["peers"]["megalodon"]
    assert "python" not in result["settings"]
    (row,) = TABLES["peers"](tmp_path, ["peers.json"]).rows
    assert row[:2] == ["MEGALODON, megalodon-jax", "2 x 32"] and row[4] == "1"


@pytest.mark.parametrize("answer", [{"parameters": 3}, None], ids=["another size", "an error"])
def test_a_peer_that_cannot_be_compared_is_refused(answer, tmp_path, capfd):
    python = program(tmp_path, **answer) if answer else "false"
    with pytest.raises(SystemExit):
        run("--python", f"megalodon-jax={python}")
    printed = capfd.readouterr()
    assert "megalodon-jax" in printed.err and not printed.out


def test_a_peer_that_is_not_installed_is_omitted(tmp_path, capsys):
    run("--json", str(tmp_path / "ours.json"))
    assert "megalodon-jax, batch 2 L=32: skipped" in capsys.readouterr().out
    assert set(read_result(tmp_path / "ours.json")["peers"]) == {"megalodon"}


@pytest.mark.parametrize("factor", [1.0, 11.0])
def test_a_model_whose_gradients_are_wrong_is_refused(factor: float) -> None:
    x = torch.tensor([3.0, 4.0], requires_grad=True)

    def gradients() -> Tuple[float, List[torch.Tensor]]:
        loss = x.square().sum()
        return float(loss), [torch.autograd.grad(loss, x)[0] * torch.tensor([1.0, factor])]

    def step(found: Sequence[torch.Tensor], size: float) -> None:
        x.data.sub_(found[0], alpha=size)

    training = Training(2, gradients, step, [])
    if factor == 1.0:
        assert warm_up(training) == pytest.approx([25.0, 25 * 0.999, 25 * 0.999**2], rel=1e-5)
    else:
        with pytest.raises(ValueError):
            warm_up(training)
