"""--compile: trainings and scores are those without it, and no graph breaks."""

import functools
import os
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List

import pytest
import torch
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch._dynamo.utils import counters

from fairseq_mega.compat.features.compiling import VARIABLE, compile_layers
from fairseq_mega.models.decoding_graph import reason_against
from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from tests.support import helpers, processes, tiny_lm, tiny_megalodon, tiny_trainings


@pytest.fixture(params=["eager", pytest.param("inductor", marks=pytest.mark.exhaustive)])
def graphs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Count the graphs, which a backend that starts sooner compiles."""
    torch._dynamo.reset()
    counters.clear()
    counting = CompileCounterWithBackend(request.param)
    monkeypatch.setattr(nn.Module, "compile", functools.partialmethod(nn.Module.compile, backend=counting))
    monkeypatch.setenv(VARIABLE, "0")  # the option changes it until the end of the process
    return counting


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("language model", ["--checkpoint-activations"]),
        pytest.param("megalodon", [], marks=pytest.mark.exhaustive),
    ],
)
def test_a_training_continues_compiled(
    kind: str,
    more: List[object],
    graphs: Any,
    trainings: tiny_trainings.Trainings,
    device_flags: List[str],
    tmp_path: Path,
) -> None:
    """A training without the option goes on with it, to the same weights; its checkpoint scores the same."""
    shape = ["--tokens-per-sample", 16, "--batch-size", 4]
    arguments = trainings.arguments(kind, *device_flags, *shape, "--dropout", 0, "--num-workers", 0, *more)
    folders = tmp_path / "eager", tmp_path / "compiled"
    for folder in folders:
        folder.mkdir()

    def train(folder: Path, updates: int, *options: object) -> Any:
        given = ["--no-epoch-checkpoints", "--disable-validation", "--max-update", updates, "--save-dir", folder]
        return tiny_trainings.numbers(helpers.run_fairseq("train", [*arguments, *given, *options]))

    def score(*options: object) -> Any:
        given = [arguments[0], "--path", folders[1] / "checkpoint_last.pt", *device_flags, *shape]
        output = helpers.run_fairseq("eval-lm", [*given, "--task", "language_modeling", *options])
        return output[output.index("Loss (base 2)") :].split(",")[0]

    for folder in folders:
        train(folder, 2)
    train(folders[0], 4)
    assert graphs.frame_count == 0
    train(folders[1], 4, "--compile")
    tiny_trainings.assert_same_weights(folders[1], folders[0])
    names = [list(torch.load(folder / "checkpoint_last.pt")["model"]) for folder in folders]
    assert names[0] == names[1] and 0 < graphs.frame_count <= 4 and not counters["graph_break"]

    trained = graphs.frame_count
    compiled = score("--compile")
    torch._dynamo.reset()
    assert score() == compiled and graphs.frame_count > trained


WIDTH = 20  # no length of a batch: the compiler would take equal sizes for one
SIZES: Dict[str, Any] = {"embed_dim": WIDTH, "hidden_dim": 32, "z_dim": 8, "ema_dim": 4, "ffn_dim": 32, "chunk_size": 8}
LAYERS: Dict[str, Callable[[], nn.Module]] = {
    "mega": lambda: MegaLayer(MegaLayerConfig(**SIZES, max_positions=64)),
    "megalodon": lambda: MegalodonLayer(MegalodonLayerConfig(**SIZES, norm_groups=4, heads=2)),
}
# Batch and length: whole chunks, of few rows too, and others, which attend over the rest apart.
SHAPES = [(4, 24), (2, 16), (3, 40), (4, 21), (2, 29)]
# bfloat16 rounds to 8 bits; a compiled layer rounds elsewhere, as it joins operations and multiplies by PyTorch.
TOLERANCE = 2**-6


def compiled(model: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the model as --compile builds it."""
    monkeypatch.setenv(VARIABLE, "1")
    list(compile_layers(SimpleNamespace(result=model)))  # type: ignore[arg-type]
    return model


def passes(layer: nn.Module, precision: str) -> List[torch.Tensor]:
    """Outputs and all gradients for every shape."""
    found = []
    for batch, length in SHAPES:
        x = torch.randn(batch, length, WIDTH, generator=torch.Generator().manual_seed(length))
        x = (x.bfloat16() if precision == "bfloat16" else x).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
            y = layer(x, LayerContext()).hidden
        weights = [*layer.parameters()]
        found += [y, *torch.autograd.grad(y.float().square().sum(), [x, *weights])]
    return [tensor.detach().float() for tensor in found]


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("mega", "autocast"),
        ("megalodon", "bfloat16"),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in (("mega", "bfloat16"), ("megalodon", "autocast"))
        ),
    ],
)
def test_in_bfloat16_two_graphs_serve_all_batches(
    name: str, precision: str, graphs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    layer = LAYERS[name]().to(torch.bfloat16 if precision == "bfloat16" else torch.float32)
    expected = passes(layer, precision)
    compiled(nn.ModuleDict({"layers": nn.ModuleList([layer])}), monkeypatch)
    for got, want in zip(passes(layer, precision), expected):
        assert (got - want).norm() <= TOLERANCE * want.norm()
    # Some graphs are passed to "inductor" twice.
    assert counters["frames"]["ok"] == 2 and 2 <= graphs.frame_count <= 4 and not counters["graph_break"]


@pytest.mark.parametrize("build", [tiny_lm.build, tiny_megalodon.build])
@torch.no_grad()
def test_single_steps_are_not_compiled(build: Any, graphs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under autocast the layers compute them, and on a GPU a CUDA graph launches their kernels."""
    model = compiled(build().float().eval(), monkeypatch)
    state = model.decoder.advance(torch.full((2, 11), 4))[1]
    before = graphs.frame_count
    assert before > 0
    with torch.autocast("cpu", torch.bfloat16):
        for _ in range(3):
            state = model.decoder.advance(torch.full((2, 1), 4), state)[1]
    assert graphs.frame_count == before and reason_against(model.decoder) is None


def train_counting(arguments: List[str], folder: str, environment: Dict[str, str], output: Connection) -> None:
    """Train in this process by a backend that starts sooner, and print the number of graphs."""
    counting = CompileCounterWithBackend("eager")
    nn.Module.compile = functools.partialmethod(nn.Module.compile, backend=counting)  # type: ignore
    try:
        train(arguments, folder, environment, output)
    finally:
        os.write(1, f"{counting.frame_count} graphs\n".encode())


train = processes._train


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "backend", "options"),
    [
        ("megalodon", "fully_sharded", ["--bf16"]),
        pytest.param("language model", "pytorch_ddp", ["--precision", "bf16"], marks=pytest.mark.exhaustive),
    ],
)
def test_two_processes_train_compiled(
    kind: str,
    backend: str,
    options: List[object],
    trainings: tiny_trainings.Trainings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same losses and weights as uncompiled."""
    monkeypatch.setattr(processes, "_train", train_counting)
    losses = []
    for name, more in (("eager", []), ("compiled", ["--compile"])):
        given: List[object] = ["--num-workers", 0, "--dropout", 0, "--tokens-per-sample", 16, "--batch-size", 4]
        given += ["--max-update", 4, "--disable-validation", "--no-epoch-checkpoints", "--save-dir", tmp_path / name]
        printed = helpers.train_with_two_processes(trainings.arguments(kind, *given, *options, *more), backend)
        losses.append([one["loss"] for one in tiny_trainings.numbers(printed) if "loss" in one])
        assert ("\n0 graphs\n" in printed) == (name == "eager")
    assert losses[0] == losses[1] and len(losses[0]) == 4
    tiny_trainings.assert_same_weights(tmp_path / "compiled", tmp_path / "eager")
