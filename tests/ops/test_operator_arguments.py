"""A tensor of another device, type or length than the rest is an error, for every tensor of every operator."""

from typing import Any, Dict, List

import pytest
import torch

from fairseq_mega.ops.common import native
from tests.ops.guarded_memory import each, tensors_of

# Sizes of the arguments below: batch, steps, width, components, groups of features; keys, values.
B, L, D, N, G, Z, V = 2, 5, 4, 3, 2, 3, 6


def floats(*shape: int) -> torch.Tensor:
    return torch.rand(shape)


def flags() -> torch.Tensor:
    return torch.zeros(B, L, dtype=torch.bool)


def scan() -> Dict[str, Any]:
    return {"x": floats(B, L, D), "log_decay": -floats(D, N), "expansion": floats(D, N), "projection": floats(D, N)}


def masked_scan() -> Dict[str, Any]:
    masks = {"padding_mask": flags(), "reset_mask": flags()}
    return {**scan(), "state": floats(B, D, N), **masks, "bidirectional": False, "shift": False, "truncation": 0}


def weights() -> Dict[str, Any]:
    return {
        "bias": floats(2 * L - 1),
        "padding": flags(),
        "counts": torch.full((B, L), L, dtype=torch.int32),
        "seed": torch.ones((), dtype=torch.int64),
        "statistics": floats(B, L, 2),
        "function": 0,
        "causal": False,
        "scale": 1.0,
        "dropout": 0.1,
        "drop_key": 0.0,
        "queries": L,
        "first_group": 0,
        "first_row": 0,
    }


def groups() -> Dict[str, Any]:
    of_blocks = ("statistics", "queries", "first_group", "first_row")
    options = {name: value for name, value in weights().items() if name not in of_blocks}
    return {"q": floats(B, L, Z), "k": floats(B, L, Z), "v": floats(B, L, V), **options}


def norm() -> Dict[str, Any]:
    counts = torch.ones(B, dtype=torch.int64)
    return {"weight": floats(D), "count": counts, "mean": floats(B, G).double(), "variance": floats(B, G).double()}


MAP, MAPS = ("weight", "scale", "bias"), ("value", "gate", "output")


def linear_map(name: str, outputs: int, inputs: int) -> Dict[str, Any]:
    weight = torch.ones(outputs, inputs, dtype=torch.int8)
    return {f"{name}_weight": weight, f"{name}_scale": floats(outputs), f"{name}_bias": floats(outputs)}


JOINED = {"gated_layers_step": "gated_attention_step", "normalized_layers_step": "normalized_attention_step"}
OF_LAYERS = {"count": "counts", "mean": "means", "variance": "variances", "state": "states"}  # and theirs of all layers


def of_all_layers(operator: str, known: Dict[str, Dict[str, Any]]) -> Dict[str, Any]:
    """Return the arguments for two layers, of those for an attention and a feed-forward sub-layer."""
    one, inner = dict(known[JOINED[operator]]), known["feed_forward_step"]
    one["table"] = one.pop("bias", None)
    weights = ["norm_scale", "norm_shift", *(f"{name}_{part}" for name in MAPS for part in MAP)]
    if operator == "gated_layers_step":
        weights += ["kappa", "mu", "decay_high", "decay_low", "expansion", "projection", "omega", "table"]
        rest = {"first": 0, "function": 0}
    else:
        weights += ["scale", "offset", "decay", "expansion", "projection", "omega", "ema_scale"]
        rest = {"turns": one["turns"], "rms": True, "two_hops": True}
    of_layer = [one[name] for name in weights]
    of_layer += [inner[name] for name in ("norm_scale", "norm_shift")]
    of_layer += [inner[f"{name}_{part}"] for name in ("input", "output") for part in MAP]
    of_layer += [] if operator == "gated_layers_step" else [inner["layer_scale"]]
    lists = {new: [one[name]] * 2 for name, new in OF_LAYERS.items() if name in one}
    buffers = {name: [one[name].clone(), one[name].clone()] for name in ("keys", "values")}
    return {"x": one["x"], "weights": of_layer * 2, **lists, **buffers, "past": one["past"], **rest}


def arguments(operator: str, kernels: str) -> Dict[str, Any]:
    """Valid arguments of an operator, with every tensor it may be given."""
    dropping = {"seed": torch.ones((), dtype=torch.int64), "p": 0.1}
    scored = {"logits": floats(B, D), "target": torch.ones(B, dtype=torch.int64)}
    gate = {**{name: floats(B, D) for name in ("x", "update", "candidate", "addend")}, **dropping}
    activation = {**{name: floats(B, D) for name in ("x", "factor", "skip")}, "omega": floats(D)}
    grads = {"grad_y": floats(B, L, D)}
    rows = {"x": floats(B, D), "weight": floats(D), "centred": True, "eps": 1e-5, "narrow": False}
    logits = {"logits": floats(B, L, L)}
    own = None if kernels == "cpu" else floats(B, L, L).half()  # a CPU writes results over the inputs
    last = {"padding_mask": flags(), "eps": 1e-5}
    ring = {"x": floats(B, L, D), "ring": floats(D, 32)}
    statistics = {name: value for name, value in norm().items() if name != "weight"}
    average = {name: floats(D, N) for name in ("decay_high", "decay_low", "expansion", "projection")}
    turned = {"x": floats(B, L, D), "scale": floats(2, 1, D), "turns": floats(3, 2, D), "first": 0, "eps": 1e-5}
    layer_norm = {"norm": True, "norm_scale": floats(D), "norm_shift": floats(D)}
    needed = dict.fromkeys(("need_x", "need_weight", "need_bias"), True)
    known: Dict[str, Dict[str, Any]] = {
        "ema_scan": masked_scan(),
        "ema_scan_backward": {**grads, "grad_state": floats(B, D, N), **masked_scan()},
        "ema_step": {**scan(), "x": floats(B, D), "omega": floats(D), "state": floats(B, D, N)},
        "attention_weights_": {**logits, **weights(), "weights": own},
        "attention_weights_backward_": {
            **logits,
            **weights(),
            "weights": own,
            "grad_logits": None if own is None else own.clone(),
            "grad_weights": floats(B, L, L),
            "grad_bias": torch.zeros(2 * L - 1, dtype=torch.float64),
        },
        "attention_groups": groups(),
        "attention_groups_backward": {"grad_out": floats(B, L, V), "statistics": floats(B, L, 2), **groups()},
        "gated_residual": gate,
        "cross_entropy": scored,
        "cross_entropy_backward": {
            **scored,
            "grad_nll": floats(B),
            "grad_smooth": floats(B),
            "statistics": floats(B, 2),
        },
        "dropout": {"x": floats(B, D), **dropping},
        "silu": activation,
        "silu_backward": {"grad": floats(B, D), **activation},
        "query_key": {"x": floats(B, D), "kappa": floats(2, D), "mu": floats(2, D)},
        "query_key_backward": {
            "grad_query": floats(B, D),
            "grad_key": floats(B, D),
            "x": floats(B, D),
            "kappa": floats(2, D),
        },
        "gated_residual_backward": {"grad": floats(B, D), **gate},
        "row_norm": {**rows, "bias": floats(D)},
        "row_norm_backward": {"grad": floats(B, D), **rows},
        "timestep_norm": {"x": floats(B, L, D), **norm(), "bias": floats(D), **last},
        "timestep_norm_backward": {
            **grads,
            "grad_mean": floats(B, G).double(),
            "grad_variance": floats(B, G).double(),
            "x": floats(B, L, D),
            **norm(),
            **last,
        },
        "ring_convolution": ring,
        "ring_convolution_backward": {**grads, **ring},
        "average_step": {"x": floats(B, D), **average, "omega": floats(D), "state": floats(B, D, N)},
        "attention_step": {
            "gates": floats(B, 2 * D + Z + V),
            "value": floats(B, V),
            "kappa": floats(2, Z),
            "mu": floats(2, Z),
            "bias": floats(3),
            "keys": floats(B, 4, Z),
            "values": floats(B, 4, V),
            "past": 2,
            "function": 0,
        },
        "packed_linear": {
            "x": floats(B, D),
            "weight": torch.ones(V, D, dtype=torch.int8),
            "scale": floats(V),
            "bias": floats(V),
        },
        "linear": {"x": floats(B, D), "weight": floats(V, D), "bias": floats(V)},
        "linear_backward": {
            "grad": floats(B, V),
            "x": floats(B, D),
            "weight": floats(V, D),
            **needed,
        },
        "linear_parts": {
            "x": floats(B, D),
            "weight": floats(32 + V, D),
            "bias": floats(32 + V),
            "second": V,
            "third": 0,
            "fourth": 0,
        },
        "linear_parts_backward": {
            "first": floats(B, 32),
            "second": floats(B, 32),
            "third": floats(B, 32),
            "fourth": floats(B, V),
            "x": floats(B, D),
            "weight": floats(96 + V, D),
            **needed,
        },
        "silu_linear": {"x": floats(B, D), "factor": floats(B, D), "weight": floats(V, D), "bias": floats(V)},
        "silu_linear_backward": {
            "grad": floats(B, V),
            "x": floats(B, D),
            "factor": floats(B, D),
            "weight": floats(V, D),
            **needed,
        },
        "rotary_query_key": {**turned, "offset": floats(2, 1, D)},
        "rotary_query_key_backward": {"grad_query": floats(B, L, D), "grad_key": floats(B, L, D), **turned},
        "gated_attention_step": {
            "x": floats(B, D),
            "residual": floats(B, D),
            **layer_norm,
            **linear_map("value", V, D),
            **linear_map("gate", 2 * D + Z + V, D),
            **linear_map("output", D, V),
            "kappa": floats(2, Z),
            "mu": floats(2, Z),
            **average,
            "omega": floats(D),
            "state": floats(B, D, N),
            "bias": floats(3),
            "keys": floats(B, 4, Z),
            "values": floats(B, 4, V),
            "past": 2,
            "function": 0,
        },
        "normalized_attention_step": {
            "x": floats(B, D),
            "norm_scale": floats(D),
            "norm_shift": floats(D),
            **statistics,
            **linear_map("value", V, D),
            **linear_map("gate", 2 * Z + V + D, D),
            **linear_map("output", D, V),
            "scale": floats(2, 1, 2 * Z),
            "offset": floats(2, 1, 2 * Z),
            "turns": floats(4, Z, 2),
            "decay": floats(D, N, 2).double(),
            "expansion": floats(D, N),
            "projection": floats(D, N, 2),
            "omega": floats(D),
            "ema_scale": floats(D),
            "rms": True,
            "state": floats(B, D, N, 2),
            "keys": floats(B, 4, 2 * Z),
            "values": floats(B, 4, V),
            "past": 2,
        },
        "feed_forward_step": {
            "x": floats(B, D),
            "residual": floats(B, D),
            **layer_norm,
            **linear_map("input", 2 * V, D),
            **linear_map("output", D, V),
            "layer_scale": floats(D),
        },
        "timestep_norm_step": {"x": floats(B, D), "scale": floats(D), "shift": floats(D), **statistics},
        "mix_step": {"residual": floats(B, D), "gates": floats(B, 2 * D), "projected": floats(B, D)},
    }
    if operator in JOINED:
        return of_all_layers(operator, known)
    return known[operator]


def operators(key: str) -> List[str]:
    """Names of the operators of the library that have a kernel for a device."""
    prefix = f"{native.NAMESPACE}::"
    names = [name[len(prefix) :] for name in torch._C._dispatch_get_all_op_names() if name.startswith(prefix)]
    return sorted(name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(f"{prefix}{name}", key))


# Tensors of any last axis: the others have no size in common with it.
FREE = {
    *(("attention_groups", "v"), ("cross_entropy", "logits"), ("cross_entropy_backward", "logits"), ("dropout", "x")),
    *(("feed_forward_step", "output_weight"), ("gated_layers_step", "weights"), ("normalized_layers_step", "weights")),
    *(("mix_step", "gates"), ("ring_convolution", "ring"), ("ring_convolution_backward", "ring")),
}


def doubled(tensor: torch.Tensor) -> torch.Tensor:
    return torch.cat([tensor, tensor], dim=-1) if tensor.dim() else tensor.expand(2)


@pytest.mark.parametrize("wrong", ["device", "type", "length"])
def test_a_tensor_that_does_not_fit_the_others_is_an_error(kernel_device, request, wrong):
    """No kernel reads or writes memory that it does not know, whichever tensor of whichever operator it is."""
    key = "CPU" if kernel_device.type == "cpu" else "CUDA"
    other = "meta" if key == "CPU" else "cpu"
    change = {"device": lambda tensor: tensor.to(other), "type": lambda tensor: tensor.short(), "length": doubled}[
        wrong
    ]
    kernels = request.node.callspec.params["kernel_device"]
    accepted = []
    # attention is made of products by torch and attention_weights_; the probe is one of the simulator's own tests
    found = [name for name in operators(key) if name not in ("attention", "attention_backward", "probe")]
    assert len(found) >= 11, found
    for name in found:
        operator = getattr(native.operators, name).default
        given = {
            name: each(lambda tensor: tensor.to(kernel_device), value)
            for name, value in arguments(name, kernels).items()
        }
        tensors = [argument.name for argument in operator._schema.arguments if "Tensor" in str(argument.type)]
        assert set(tensors) <= set(given), name
        keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key))
        operator.redispatch(keys, **given)  # with everything in its place
        for tensor, part in ((name, part) for name in tensors for part in tensors_of(given[name])):
            if wrong == "length" and (name, tensor) in FREE:
                continue
            changed = each(lambda any_part: change(part) if any_part is part else any_part, given[tensor])  # noqa: B023
            try:
                operator.redispatch(keys, **{**given, tensor: changed})
            except RuntimeError as error:
                if wrong == "device" and "move them to one device" not in str(error):
                    accepted.append(f"{name}, {tensor}: {error}")
            else:
                accepted.append(f"{name}, {tensor}")
    assert not accepted, "\n".join(accepted)
