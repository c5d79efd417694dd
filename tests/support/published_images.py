"""The published image classifier: a checkpoint of random weights in its layout, and its formulas as loops and sums."""

import math
from argparse import Namespace
from typing import Any, Dict, List

import torch
from torch import Tensor

from tests.support.published_layouts import CLASSES, D, Shapes, affine, drawn, layer, norm

PATCH, SIDE = 4, 3  # pixels of a patch, patches of a side
PLACES, SIZE = SIDE**2, SIDE * PATCH


def checkpoint(blocks: int = 2, kind: str = "layernorm", **changed: Any) -> Dict[str, Any]:
    """As the published training leaves it, but for the optimiser's numbers."""
    shapes: Shapes = {"pos_embed": (1, PLACES, D), "patch_embed.pemb.proj.weight": (D, 3, PATCH, PATCH)}
    shapes["patch_embed.pemb.proj.bias"] = (D,)
    for index in range(blocks):
        shapes.update(layer(f"blocks.{index}", True, kind, PLACES))
    final = norm("final_norm", kind)
    shapes.update({name.replace("final_norm.norm.norm.", "final_norm.norm."): shape for name, shape in final.items()})
    shapes.update({**affine("out_proj.fc", D, D), **affine("head", CLASSES, D)})
    args = Namespace(model="mega_own", drop=0.0, drop_path=0.3, norm_type=kind, lr=0.002, input_size=SIZE)
    rest: Dict[str, Any] = {"optimizer": {"state": {}, "param_groups": []}, "lr_scheduler": {"base_values": [0.002]}}
    rest.update(epoch=7, steps=900, model_ema=None, scaler={})
    return {"model": drawn(shapes, 6), **rest, "args": args, **changed}


def normalised(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight + bias


def swish(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def moving_average(w: Dict[str, Tensor], prefix: str, x: Tensor) -> Tensor:
    """The recurrences, one from each end; what comes from the end is read before the present patch enters it."""
    share, damping = (1 / (1 + torch.exp(-w[f"{prefix}.{name}"][..., 0])) for name in ("alpha", "delta"))
    entry, out = share * w[f"{prefix}.beta"][..., 0], w[f"{prefix}.gamma"] / math.sqrt(share.size(1))
    keep, width, length = 1 - share * damping, x.size(2), x.size(1)
    found: List[Tensor] = [x[:, t] * w[f"{prefix}.omega"] for t in range(length)]
    state = x.new_zeros(x.size(0), width, keep.size(1))
    for t in range(length):
        state = keep[:width] * state + entry[:width] * x[:, t, :, None]
        found[t] = found[t] + (out[:width] * state).sum(-1)
    state = torch.zeros_like(state)
    for t in reversed(range(length)):
        found[t] = found[t] + (out[width:] * state).sum(-1)
        state = keep[width:] * state + entry[width:] * x[:, t, :, None]
    return swish(torch.stack(found, 1))


def attended(w: Dict[str, Tensor], prefix: str, x: Tensor) -> Tensor:
    d, (v, _), z = x.size(2), w[f"{prefix}.v_proj.weight"].shape, w[f"{prefix}.gamma"].size(1)

    def mapped(name: str, y: Tensor) -> Tensor:
        return y @ w[f"{prefix}.{name}.weight"].T + w[f"{prefix}.{name}.bias"]

    before = normalised(x, w[f"{prefix}.norm.norm.weight"], w[f"{prefix}.norm.norm.bias"])
    gates = mapped("mx_proj", moving_average(w, f"{prefix}.move", before))
    update, candidate = 1 / (1 + torch.exp(-gates[..., :d])), gates[..., d + z + v :]
    shared, reset = swish(gates[..., d : d + z]), swish(gates[..., d + z : d + z + v])
    query, key = (shared * w[f"{prefix}.gamma"][row] + w[f"{prefix}.beta"][row] for row in (0, 1))
    bias, length = w[f"{prefix}.rel_pos_bias.rel_pos_bias"], x.size(1)
    toeplitz = torch.stack([torch.stack([bias[length - 1 + j - i] for j in range(length)]) for i in range(length)])
    logits = query @ key.transpose(1, 2) / length + toeplitz
    weights = (1 + torch.erf((logits - 0.707107) / (0.282095 * math.sqrt(2)))) / 2
    new = swish(candidate + mapped("h_proj", weights @ swish(mapped("v_proj", before)) * reset))
    return update * new + (1 - update) * x


def logits(w: Dict[str, Tensor], images: Tensor) -> Tensor:
    """Logits (B, classes) of images (B, 3, S, S), with layer norms."""
    patches = []
    for row in range(SIDE):
        for column in range(SIDE):
            patch = images[:, :, row * PATCH : (row + 1) * PATCH, column * PATCH : (column + 1) * PATCH]
            kernel = w["patch_embed.pemb.proj.weight"]
            patches.append(torch.einsum("bcij,dcij->bd", patch, kernel) + w["patch_embed.pemb.proj.bias"])
    x = torch.stack(patches, 1) + w["pos_embed"]
    for index in range(len({name.split(".")[1] for name in w if name.startswith("blocks.")})):
        x = attended(w, f"blocks.{index}.mega_layer", x)
        nffn = f"blocks.{index}.nffn"
        inner = normalised(x, w[f"{nffn}.norm.norm.weight"], w[f"{nffn}.norm.norm.bias"])
        inner = swish(inner @ w[f"{nffn}.fc1.weight"].T + w[f"{nffn}.fc1.bias"])
        x = x + inner @ w[f"{nffn}.fc2.weight"].T + w[f"{nffn}.fc2.bias"]
    x = normalised(x, w["final_norm.norm.weight"], w["final_norm.norm.bias"])
    x = swish(x @ w["out_proj.fc.weight"].T + w["out_proj.fc.bias"]).mean(1)
    return x @ w["head.weight"].T + w["head.bias"]
