"""A consolidated checkpoint of XuezheMax/megalodon with random weights, whole or split between ranks."""

import json
from pathlib import Path
from typing import Dict, List

import torch
from torch import Tensor

D, Z, V, F, N, H, G, SYMBOLS = 8, 8, 12, 10, 3, 2, 2, 24
CONFIG = {
    "num_layers": 2,
    "model_dim": D,
    "z_dim": Z,
    "value_dim": V,
    "num_heads": H,
    "ffn_hidden_dim": F,
    "cema_ndim": N,
    "chunk_size": 5,
    "efficient_attn": "swift",
    "init_mode": "he",
    "vocab_size": SYMBOLS,
    "norm_num_groups": G,
    "norm_affine": True,
    "norm_eps": 1e-5,
    "rope_base": None,
    "dropout": 0.0,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "swiglu": True,
    "rescale_nffn": True,
    "scale_emb": False,
    "share_emb": False,
}
# Which axis of a tensor a rank holds a part of; the others are whole on each.
ROWS = (
    *("timenorm.weight", "timenorm.bias", "prior_mean", "prior_logv", "cema.alpha", "cema.delta", "cema.theta"),
    *("cema.gamma", "cema.omega", "wv.weight", "wv.bias", "wz.weight", "wz.bias", "wr.weight", "wr.bias"),
    *("wh1.weight", "wh1.bias", "fc1.weight", "fc3.weight", "nffn.alpha", "final_norm.weight", "final_norm.bias"),
)
COLUMNS = ("wh2.weight", "fc2.weight", "mega.gamma", "mega.beta", "embed.weight", "output.output.weight")


def model(seed: int = 6) -> Dict[str, Tensor]:
    shapes: Dict[str, List[int]] = {"embed.weight": [SYMBOLS, D], "output.output.weight": [SYMBOLS, D]}
    for index in range(2):
        mega, nffn = f"layers.{index}.mega.", f"layers.{index}.nffn."
        shapes.update({f"{mega}timenorm.weight": [D], f"{mega}timenorm.bias": [D], f"{mega}rmsnorm.weight": [D]})
        shapes.update({f"{mega}cema.alpha": [D, N, 1], f"{mega}cema.delta": [D, N, 1], f"{mega}cema.theta": [D, 1, 1]})
        shapes.update({f"{mega}cema.gamma": [D, N, 2], f"{mega}cema.omega": [D, 1], f"{mega}wh2.weight": [D, V]})
        shapes.update({f"{mega}gamma": [2, Z], f"{mega}beta": [2, Z]})
        for name, rows in (("wv", V), ("wz", Z), ("wr", V), ("wh1", D)):
            shapes.update({f"{mega}{name}.weight": [rows, D], f"{mega}{name}.bias": [rows]})
        shapes.update({f"{nffn}norm.weight": [D], f"{nffn}norm.bias": [D], f"{nffn}alpha": [D]})
        shapes.update({f"{nffn}fc1.weight": [F, D], f"{nffn}fc3.weight": [F, D], f"{nffn}fc2.weight": [D, F]})
    shapes.update({"output.final_norm.weight": [D], "output.final_norm.bias": [D]})
    generator = torch.Generator().manual_seed(seed)
    tensors = {name: torch.randn(shape, generator=generator) * 0.5 for name, shape in shapes.items()}
    for norm in ("layers.0.mega.timenorm", "layers.1.mega.timenorm", "output.final_norm"):
        tensors[f"{norm}.prior_count"] = torch.tensor(0)
        tensors.update({f"{norm}.{name}": torch.zeros(G) for name in ("prior_mean", "prior_logv")})
    tensors["rope.freqs"] = 1.0 / torch.tensor([10000 ** (j / (Z // H)) for j in range(0, Z // H, 2)])
    return tensors


def write(folder: Path, tensors: Dict[str, Tensor], ranks: int) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model": CONFIG, "tokenizer": {}}))
    (folder / "consolidate_config.json").write_text(json.dumps({"model_parallel_size": ranks, "dtype": "fp32"}))
    for rank in range(ranks):
        part = {}
        for name, tensor in tensors.items():
            axis = 0 if name.endswith(ROWS) else 1 if name.endswith(COLUMNS) else None
            part[name] = tensor if axis is None else tensor.chunk(ranks, axis)[rank].clone()
        torch.save(part, folder / ("consolidated.pth" if ranks == 1 else f"consolidated.{rank:02d}.pth"))
