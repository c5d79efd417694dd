"""Language models beside other implementations of them, each in an environment of its own."""

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from fairseq_mega.lab.benchmarks import command
from fairseq_mega.lab.benchmarks.peers import PEERS, WORKER, Worker
from fairseq_mega.lab.benchmarks.peers_worker import BUILDERS
from fairseq_mega.lab.report.benchmark_tables import peers as table_of_peers
from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.ops.common import native

TINY = {"width": 32, "layers": 1, "chunk": 16, "symbols": 40, "batch": 2, "length": 32, "threads": 1, "seed": 1}
# A peer that answers without a model: {seconds} for every pass.
ANSWERS = """
import json, sys
print(json.dumps({{"parameters": {parameters}, "losses": [2.0, 1.0], "versions": {{"peer": "1.0"}}}}), flush=True)
for line in sys.stdin:
    print(json.dumps({{"memory_mib": 64.0}} if "memory" in line else {{"seconds": {seconds}}}), flush=True)
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


def program(folder: Path, parameters: int = 2_074_560, seconds: float = 100.0) -> Path:
    path, script = folder / "python", folder / "answers.py"
    script.write_text(ANSWERS.format(parameters=parameters, seconds=seconds), encoding="utf-8")
    words = shlex.join([sys.executable, str(script)])  # the first line of a script cannot name a folder with a space
    path.write_text(f'#!/bin/sh\nexec {words} "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def run(*given: str) -> None:
    command.main(["peers", "--smoke", "--peers", "transformers", *given])


def answers_of(model: str, *words: str, path: Path = Path()) -> "List[Dict[str, Any]]":
    """Return the answers of a model's process, which also finds the packages in a folder."""
    environment = {"PATH": "", "PYTHONPATH": str(path)}
    given = [sys.executable, str(WORKER), json.dumps({**TINY, "model": model})]
    done = subprocess.run(given, input="\n".join(words), capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_model_of_ours_beside_a_peer(tmp_path, capfd):
    file, rows = tmp_path / "peers.json", tmp_path / "rows.jsonl"
    given = ["--json", str(file), "--rows", str(rows), "--python"]
    run(*given, f"transformers={program(tmp_path)}")
    assert "| transformers | 2 x 32 | 2,074,560 | 1 | " in capfd.readouterr().out
    result = read_result(file)
    scores, ours, peer = result["scores"], "mega, batch 2 L=32", "transformers, batch 2 L=32"
    assert scores[f"{ours} parameters"] == 2_074_560 and scores[f"{ours} memory_mib"] > 0
    assert scores[f"{peer} speed"] == 100.0 / scores[f"{ours} seconds"] > 10.0
    if native.PROBLEM is None:
        limit = scores[f"{peer} speed"] * scores[f"{ours} speed_limit"]
        assert scores[f"{peer} speed_limit"] == pytest.approx(limit) and limit > 0.0
    assert scores[f"{peer} memory"] == scores[f"{ours} memory_mib"] / 64.0
    assert result["peers"]["transformers"] == {"peer": "1.0"} and "torch" in result["peers"]["mega"]
    assert "python" not in result["settings"]
    (row,) = table_of_peers(tmp_path, ["peers.json"]).rows
    assert row[:2] == ["MEGA-chunk, transformers", "2 x 32"] and row[4] == "1"

    run(*given, f"transformers={program(tmp_path, seconds=1.0)}")  # is not measured again
    assert read_result(file)["scores"] == scores
    assert "turn" not in capfd.readouterr().err


def test_a_peer_of_another_size_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="transformers has 3 parameters and mega 2,074,560"):
        run("--python", f"transformers={program(tmp_path, parameters=3)}")


def test_a_peer_that_is_not_installed_is_omitted(tmp_path, capsys):
    command.main(["peers", "--smoke", "--peers", "megalodon-jax", "--json", str(tmp_path / "ours.json")])
    assert f"no module equinox: {sys.executable} -m pip install megalodon-jax==" in capsys.readouterr().err
    assert set(read_result(tmp_path / "ours.json")["peers"]) == {"megalodon"}


@pytest.mark.slow
@pytest.mark.parametrize("model", ["mega", "megalodon"])
def test_models_of_ours_train(model):
    """One process answers for each; the published arrangement has the parameters of ours."""
    parameters = []
    for name in (model, f"{model}-published"):
        ready, step, memory = answers_of(name, "step", "memory")
        assert ready["losses"] == sorted(ready["losses"], reverse=True)
        assert step["seconds"] > 0 and memory["memory_mib"] >= 0
        parameters.append(ready["parameters"])
    assert parameters[0] == parameters[1]


def test_a_peer_needs_its_package_alone(tmp_path):
    (tmp_path / "mega_pytorch.py").write_text(MEGA_PYTORCH.format(inputs="self.table(tokens)"))
    folder = tmp_path / "mega_pytorch-9.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: mega-pytorch\nVersion: 9\n")
    ready, step = answers_of("mega-pytorch", "step", path=tmp_path)
    assert ready["parameters"] == 40 * 32 + 33 * 40 and ready["versions"]["mega-pytorch"] == "9"
    assert step["seconds"] > 0


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ("self.table(tokens).detach()", "mega-pytorch: 1 of its parameters get no gradient"),
        # A table with eleven times its gradient.
        ("11 * self.table(tokens) - 10 * self.table(tokens).detach()", "mega-pytorch: the losses .* do not fall as"),
    ],
)
def test_a_peer_whose_gradients_are_wrong_is_refused(inputs, message, tmp_path, monkeypatch):
    (tmp_path / "mega_pytorch.py").write_text(MEGA_PYTORCH.format(inputs=inputs))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(ValueError, match=message), Worker("mega-pytorch", sys.executable, TINY):
        pass


def test_a_process_that_fails_ends_the_benchmark(capfd):
    with pytest.raises(ValueError, match="rnn ended with exit status 1"), Worker("rnn", sys.executable, TINY):
        pass
    assert "KeyError: 'rnn'" in capfd.readouterr().err


def test_every_model_has_a_builder():
    assert set(BUILDERS) == {*PEERS, *(peer.ours for peer in PEERS.values())}
