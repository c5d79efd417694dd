"""Rules of every compiled operator: torch's, and an error for a tensor that does not fit the others."""

import itertools
from typing import Any, Dict, List, Set, Tuple

import pytest
import torch

from fairseq_mega.ops.activation import silu
from fairseq_mega.ops.common import native
from fairseq_mega.ops.ema import EMACoefficients
from fairseq_mega.ops.ema.native import Gate, ema_native
from fairseq_mega.ops.fft_conv import ring_convolution
from fairseq_mega.ops.gate import gated_residual
from tests.ops import calls
from tests.ops.attention_cases import weights_of_sixteen_bits
from tests.ops.calls import Arguments, each, tensors_of


class Recorded(calls.Watch):
    """Keep some calls of each operator: each has a tensor, or a part of a list, that the ones before lack."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: Dict[str, List[Arguments]] = {}
        self.seen: Set[Tuple[str, str, int]] = set()

    def call(self, operator: Any, arguments: Arguments) -> Any:
        name = operator._schema.name.split("::")[1]
        places = {(name, *place) for place in places_of(arguments)}
        if not places <= self.seen:
            self.seen |= places
            copies = {key: each(lambda t: t.detach().clone(), value) for key, value in arguments.items()}
            self.kept.setdefault(name, []).append(copies)
        return operator(**arguments)


def places_of(arguments: Arguments) -> List[Tuple[str, int]]:
    """Names of the arguments that are tensors, with the numbers of those in a list."""
    lists = {name: value if isinstance(value, (list, tuple)) else [value] for name, value in arguments.items()}
    return [(key, i) for key, parts in lists.items() for i, part in enumerate(parts) if isinstance(part, torch.Tensor)]


@pytest.fixture
def recorded(kernel_device, monkeypatch) -> Dict[str, List[Arguments]]:
    """Arguments of every operator that the kernels have."""
    with torch.device(kernel_device), Recorded() as found:
        if kernel_device.type == "cpu" and native.NAMESPACE == "fairseq_mega":
            calls.run_all((torch.float32,))
            return found.kept
        torch.manual_seed(1)
        calls.run_ema(torch.float32)
        calls.run_coefficients()
        weights_of_sixteen_bits(monkeypatch)  # which a CPU lacks
        calls.run_attention(torch.bfloat16, ("native",))
        calls.run_gate_and_statistics(torch.float32)
        calls.run_activations(torch.float32)
        calls.run_norms(torch.float32)
        x, update, bias = calls.draw(2, 5, 7), calls.draw(2, 5, 7), calls.draw(7)
        calls.backward(silu(x, bias=bias, path="native"), gated_residual(x, update, x, bias=bias, path="native"))
        coefficients = EMACoefficients(-torch.rand(7, 3), *torch.randn(2, 7, 3))
        calls.backward(ema_native(x, coefficients, gate=Gate(bias, True, 0.1))[0])
        native.operators.join_parts(*(calls.draw(5, width) for width in (2, 3, 4, 1)))
        calls.run_sums_with_norms()
        calls.run_ema_steps()
        calls.backward(ring_convolution(calls.draw(2, 5, 4), torch.randn(4, 32).requires_grad_()))
    return found.kept


def names_with_tensors(key: str) -> List[str]:
    """Names of the operators of the library that have a kernel for a device and read tensors."""
    schemas = [s for s in torch._C._jit_get_all_schemas() if s.name.startswith(f"{native.NAMESPACE}::")]
    names = [s.name for s in schemas if any("Tensor" in str(a.type) for a in s.arguments)]
    return sorted(n.split("::")[1] for n in names if torch._C._dispatch_has_kernel_for_dispatch_key(n, key))


def test_operators_keep_torchs_rules(recorded, kernel_device):
    """Schemas, shapes for the compiler, and gradients; single steps of decoding are never compiled."""
    for name, arguments in ((name, call) for name, kept in recorded.items() for call in kept):
        if name.endswith("_step") and name != "ema_step":
            continue
        operator = getattr(native.operators, name).default
        options: Dict[str, Any] = {}
        if name.endswith("_"):  # they write into buffers, which autograd never sees
            options["test_utils"] = ("test_schema", "test_faketensor")
        if f"{native.NAMESPACE}::{name}" in native._FUNCTIONS:
            arguments = {key: each(differentiable, value) for key, value in arguments.items()}
        torch.library.opcheck(operator, (), arguments, **options)


def differentiable(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().requires_grad_(tensor.is_floating_point())


# Tensors of any last axis: the others have no size in common with it.
FREE = {
    *(("attention_groups", "v"), ("cross_entropy", "logits"), ("cross_entropy_backward", "logits"), ("dropout", "x")),
    *(("feed_forward_step", "output_weight"), ("gated_layers_step", "weights"), ("normalized_layers_step", "weights")),
    *(
        ("mix_step", "gates"),
        ("attention_step", "gates"),
        ("ring_convolution", "ring"),
        ("ring_convolution_backward", "ring"),
    ),
    *(("join_parts", part) for part in ("first", "second", "third", "fourth")),
}
# Tensors that a CPU is never given: its attention writes over its inputs, MEGALODON's output has no bias, dropout has a
# kernel of its own, linear maps add their biases, another operator follows the EMA's scan, and the timestep norm has
# one result.
UNUSED = {
    *(("ema_scan", "omega"), ("ema_scan", "seed")),
    *(("attention_weights_", "weights"), ("normalized_attention_step", "output_bias")),
    *(("attention_weights_backward_", "weights"), ("attention_weights_backward_", "grad_logits")),
    *(("silu", "seed"), ("silu_backward", "seed"), ("timestep_norm_backward", "grad_narrow")),
    *((f"{name}{way}", "bias") for name in ("silu", "gated_residual") for way in ("", "_backward")),
}


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat([tensor, tensor], dim=-1) if tensor.dim() else tensor.expand(2)


def test_a_tensor_that_does_not_fit_the_others_is_an_error(recorded, kernel_device):
    """No kernel reads or writes memory that it does not know, whichever tensor of whichever operator it is."""
    key = "CPU" if kernel_device.type == "cpu" else "CUDA"
    other = "meta" if key == "CPU" else "cpu"
    changes = {"device": lambda tensor: tensor.to(other), "type": lambda tensor: tensor.short(), "length": doubled}
    # attention is made of products by torch and attention_weights_; the probe is one of the simulator's own tests
    found = [name for name in names_with_tensors(key) if name not in ("attention", "attention_backward", "probe")]
    assert len(found) >= 11 and set(found) <= set(recorded), set(found) - set(recorded)
    keys, accepted = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key)), []
    for name in found:
        operator, given = getattr(native.operators, name).default, recorded[name]
        read = {argument for call in given for argument, _ in places_of(call)}
        tensors = {argument.name for argument in operator._schema.arguments if "Tensor" in str(argument.type)}
        assert all((name, tensor) in UNUSED for tensor in tensors - read), f"{name}: {tensors - read}"
        for call in given:
            operator.redispatch(keys, **call)  # with everything in its place
            if len(places_of(call)) == 1:  # nothing to compare with
                continue
            for (wrong, change), tensor in itertools.product(changes.items(), read & set(call)):
                for part in tensors_of(call[tensor]):
                    if wrong == "length" and ((name, tensor) in FREE or part.numel() == 0):
                        continue
                    changed = each(lambda any_part: change(part) if any_part is part else any_part, call[tensor])  # noqa: B023
                    try:
                        operator.redispatch(keys, **{**call, tensor: changed})
                    except RuntimeError as error:
                        if wrong == "device" and "move them to one device" not in str(error):
                            accepted.append(f"{name}, {tensor}: {error}")
                    else:
                        accepted.append(f"{name}, {tensor}: {wrong}")
    assert not accepted, "\n".join(accepted)


def test_the_dispatcher_is_passed_by(kernel_device):
    """An eager call with gradients is a node of a function of ours, not of one that torch made for the operator."""
    x, update, candidate = torch.randn(3, 2, 8, device=kernel_device).requires_grad_().unbind()
    output = native.operators.gated_residual(x, update, candidate, None, None, None, 0.0)
    assert type(output.grad_fn).__name__ == "gated_residualBackward"
    with torch.no_grad():
        assert not native.operators.gated_residual(x, update, candidate, None, None, None, 0.0).requires_grad
