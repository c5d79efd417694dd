"""Attention by kernels in Triton: dropping, wide values, memory, choice, and what the GPUs' compiler makes of them.

tests/ops/test_attention_paths.py compares the path with the formula.
"""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fairseq_mega.ops import attention as ops
from fairseq_mega.ops.attention import FUNCTIONS, attention, joins_gate, triton_flash
from fairseq_mega.ops.common.dispatch import PathUnavailableError
from tests.ops.attention_cases import assert_all_close, compare, output_and_gradients, padding, tensors
from tests.ops.test_attention import peak_of
from tests.support.kernels import select, select_triton
from tests.support.numerics import leaves


@pytest.fixture
def triton_device(request, monkeypatch):
    return select_triton(request, monkeypatch)


def seeded(inputs, dtype, path, device, mask, **options):
    torch.manual_seed(11)
    return output_and_gradients(inputs, dtype, path, device, mask, **options)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("rates", [(0.3, 0.0), (0.0, 0.3), (0.2, 0.9), (1.0, 0.0)])
def test_drops_what_native_drops(triton_device, function, rates, request, monkeypatch):
    """Values and every gradient; with DropKey at 0.9 some queries lose all keys."""
    select(triton_device.type, request, monkeypatch)
    dropout, drop_key = rates
    inputs, mask = tensors(37, 70, (3,)), padding((3,), 70)
    options = {"function": function, "causal": True, "dropout": dropout, "drop_key": drop_key}
    got = seeded(inputs, torch.float32, "triton", triton_device, mask, **options)
    want = seeded(inputs, torch.float32, "native", triton_device, mask, **options)
    for name in want:
        torch.testing.assert_close(got[name], want[name], rtol=2e-5, atol=2e-5 * float(want[name].abs().max()) + 1e-6)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("width", [32, 37])
def test_wide_values_in_pieces(triton_device, function, width, monkeypatch):
    monkeypatch.setattr(triton_flash, "PIECE", 16)
    inputs = tensors(41, 41, (2,), 5, width)
    compare(inputs, "triton", triton_device, mask=padding((2,), 41), function=function, causal=True)


def gates(groups, queries, width):
    """Rows that lie apart, of any size, and zero or so small that their SiLU is."""
    gate = 20.0 * torch.randn(groups, queries, 3 * width, dtype=torch.float64)[..., :width]
    gate[:, ::3] *= 0.05
    gate[:, 1], gate[:, 2] = 0.0, 1e-30
    return gate


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_multiplies_by_a_gate(triton_device, function, dtype, monkeypatch):
    """And by no silu after it; zeros have their gradient, too."""
    monkeypatch.setattr(ops, "silu", None if dtype == torch.float32 else ops.silu)
    torch.manual_seed(1)
    inputs = {**tensors(37, 70, (3,), 8, 20), "gate": gates(3, 37, 20)}
    mask = padding((3,), 70)
    got = output_and_gradients(inputs, dtype, "triton", triton_device, mask, function=function, causal=True)
    monkeypatch.undo()
    want, usual = (
        output_and_gradients(inputs, precision, "reference", triton_device, mask, function=function, causal=True)
        for precision in (torch.float64, dtype)
    )
    assert_all_close(got, want, usual)
    assert got["gradient of gate"][:, 1:3].abs().min() > 0


def test_a_gate_is_one_kernel_where_the_backward_pass_can_divide_by_it(triton_device, monkeypatch):
    monkeypatch.setenv("FAIRSEQ_MEGA_PATHS", "attention=triton")
    q, v = torch.zeros(2, 16, 4, device=triton_device), torch.zeros(2, 16, 300, device=triton_device)
    assert joins_gate(q, v[..., :256]) and joins_gate(q.bfloat16(), v[..., :6])
    assert not joins_gate(q, v) and not joins_gate(q.half(), v[..., :6])
    monkeypatch.setenv("FAIRSEQ_MEGA_PATHS", "attention=reference")
    assert not joins_gate(q, v[..., :6])


@pytest.mark.parametrize(("programs", "shape"), [(3, (129, 70, (3,))), (65, (5, 7, (70,)))])
def test_the_programs_of_a_bias_take_turns(triton_device, programs, shape, monkeypatch):
    """Fewer programs than blocks of queries, as on a GPU, or more than rows of a block; nothing unwritten is read."""
    monkeypatch.setattr(triton_flash, "PROGRAMS", programs)
    monkeypatch.setattr(torch.Tensor, "new_empty", lambda x, *size, **rest: x.new_full(size, float("nan"), **rest))
    compare(tensors(*shape), "triton", triton_device, function="laplace")


@pytest.mark.slow
def test_memory_is_linear_in_the_length(triton_device):
    """All that a training step allocates at any moment is a part of one L x L matrix."""
    length = 384 if triton_device.type == "cpu" else 4096
    inputs = leaves({n: t.to(triton_device) for n, t in tensors(length, length, (1,), 4, 4).items()}, torch.float32)

    def work():
        attention(**inputs, function="softmax", path="triton", causal=True, dropout=0.1).sum().backward()

    assert 0 < peak_of(work, triton_device) < length * length * 4 / 4


@pytest.mark.gpu
def test_the_gradients_repeat(triton_device):
    """The order in which a bias's gradient is added up is always the same."""
    inputs = tensors(150, 150, (3,))
    first, second = (
        output_and_gradients(inputs, torch.float32, "triton", triton_device, None, function="relu2") for _ in range(2)
    )
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_is_an_operator_of_torch(triton_device, function):
    """The assumptions of fake tensors and of the compiler about it are true."""
    q, k, v = (torch.randn(2, 16, 4, device=triton_device, requires_grad=True) for _ in range(3))
    bias = torch.randn(31, device=triton_device, requires_grad=True)
    for gate in (None, torch.randn(2, 16, 8, device=triton_device)[..., 3:7].requires_grad_()):
        arguments = (gate, q, k, v, bias, None, None, function, True, 0.0, 0.0, 0.5)
        torch.library.opcheck(torch.ops.fairseq_mega.triton_attention.default, arguments)


def test_is_one_operator_of_a_compiled_graph(triton_device):
    graphs = []

    def keep(graph, _):
        graphs.append(graph)
        return graph

    given = {**tensors(21, 37, (3,)), "gate": torch.randn(3, 21, 18)[..., 6:12]}
    inputs = {name: tensor.to(triton_device, torch.float32) for name, tensor in given.items()}
    compiled = torch.compile(attention, fullgraph=True, dynamic=True, backend=keep)
    found = compiled(**inputs, path="triton", causal=True)
    torch.testing.assert_close(found, attention(**inputs, path="triton", causal=True))
    targets = [str(node.target) for node in graphs[0].graph.nodes if node.op == "call_function"]
    assert targets.count("fairseq_mega.triton_attention.default") == 1 == len(graphs)


@pytest.mark.parametrize("wrong", [None, 0, 1, 2, 3, 4])
def test_a_device_is_used_if_its_results_are_right(triton_device, wrong, monkeypatch):
    """Each gradient that differs by a twentieth is noticed."""
    right = triton_flash._backward

    def backward(*arguments):
        return tuple(grad * (1.05 if at == wrong else 1.0) for at, grad in enumerate(right(*arguments)))

    monkeypatch.setattr(triton_flash, "_backward", backward)
    assert triton_flash._agree(triton_device) == (wrong is None)


def test_chooses_by_device_type_and_width(monkeypatch):
    """The automatic choice: 16 bits on a GPU, and values of which a program holds all features."""
    monkeypatch.setattr(triton_flash, "_unusable", lambda kind, index: None)
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    q = torch.zeros(2, 128, 64, dtype=torch.bfloat16)

    def chosen(q, values=256):
        return ops.PATHS.choose("auto", q, q[..., 0].numel() * 128, values)

    assert chosen(q) == "triton"
    with torch.autocast("cpu", torch.bfloat16):
        assert chosen(q.float()) == "triton"
    others = [chosen(q.float()), chosen(q, 257), chosen(q[:, :15]), chosen(q.repeat(1, 1, 3)), chosen(q.double())]
    assert "triton" not in others


@pytest.mark.parametrize(
    ("package", "interpreted", "reason"),
    [(True, "0", "tensors on a GPU, found cpu"), (False, "1", "needs the package triton")],
)
def test_says_why_it_cannot_run(package, interpreted, reason, monkeypatch):
    monkeypatch.setenv(triton_flash.INTERPRETER, interpreted)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: package or None)
    q = torch.zeros(1, 16, 4)
    with pytest.raises(PathUnavailableError, match=reason):
        attention(q, q, q, path="triton")
    monkeypatch.setenv("FAIRSEQ_MEGA_PATHS", "attention=triton")
    with pytest.raises(PathUnavailableError, match=reason):
        attention(q, q, q)
    with pytest.raises(PathUnavailableError, match="up to 256 features"):
        attention(*(torch.zeros(1, 16, 257),) * 3, path="triton")


COMPILE = Path(__file__).with_name("compile_triton.py")


@pytest.mark.slow
@pytest.mark.parametrize("capability", [80, 90])
def test_registers_and_shared_memory(capability, request, monkeypatch):
    """The kernels of the automatic choice, compiled without a GPU, with all that they can do."""
    select_triton(request, monkeypatch)
    environment = {**os.environ, triton_flash.INTERPRETER: "0"}
    command = [sys.executable, str(COMPILE), str(capability)]
    found = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    rows = [re.split(r" +", line) for line in found.stdout.splitlines()]
    assert len(rows) == 3 * len(FUNCTIONS)
    for kernel, function, registers, stack, shared in rows:
        assert int(registers) <= 255 and int(stack) == 0, (kernel, function)
        assert int(shared) <= {80: 163, 90: 227}[capability] << 10, (kernel, function)
