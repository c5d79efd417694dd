"""A checkpoint of the published image classifier with random weights, in its layout."""

from argparse import Namespace
from typing import Any, Dict

from tests.support.published_layouts import CLASSES, D, Shapes, affine, drawn, layer, norm

PATCH, SIDE = 4, 3  # pixels of a patch, patches of a side
PLACES, SIZE = SIDE**2, SIDE * PATCH


def checkpoint(blocks: int = 2, kind: str = "layernorm", **changed: Any) -> Dict[str, Any]:
    """Return a checkpoint as the published training leaves it, but for the optimiser's numbers."""
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
