"""Sizes of MEGALODON's hidden states and of what each sub-layer adds to them, layer by layer.

For each layer: the root mean square of its input, of what attention adds, of what the feed-forward adds, and the cosine
between the layer's input and its output, over the tokens of a text.

    python examples/megalodon/norms.py CHECKPOINT DATA TEXT [--json FILE]
"""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any, Dict, List

import torch
import torch.nn.functional as F

from fairseq_mega.lab.runs.results import make_result, write_result
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.modules.megalodon.layer import MegalodonLayer

COLUMNS = ("input", "attention", "feed-forward", "cosine")


class Sizes:
    """Sums over the tokens that a layer reads."""

    def __init__(self, layer: MegalodonLayer) -> None:
        self.sums = torch.zeros(4, dtype=torch.float64)
        self.tokens = 0
        layer.attention.register_forward_hook(self.after_attention)
        layer.register_forward_hook(self.after_layer)

    def after_attention(self, module: Any, given: Any, output: Any) -> None:
        self.attended = output.hidden

    def after_layer(self, module: Any, given: Any, output: Any) -> None:
        x, attended, y = given[0].double(), self.attended.double(), output.hidden.double()
        added = y - (x if module.residual_hops == 2 else attended)
        squares = [part.square().mean(-1).sum() for part in (x, attended - x, added)]
        self.sums += torch.stack([*squares, F.cosine_similarity(x, y, dim=-1).sum()])
        self.tokens += x.shape[:-1].numel()

    def means(self) -> List[float]:
        """Return a value for each of COLUMNS."""
        *squares, cosine = (self.sums / self.tokens).tolist()
        return [square**0.5 for square in squares] + [cosine]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("data", help="data folder of the training")
    parser.add_argument("text", type=Path)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to this file")
    args = parser.parse_args()
    hub = MegaLanguageModel.from_pretrained(str(args.checkpoint.parent), args.checkpoint.name, args.data).eval()
    sizes = [Sizes(layer) for layer in hub.models[0].decoder.layers]
    with torch.no_grad():
        likelihood = hub.likelihood(args.text.read_text())
    scores: Dict[str, float] = {}
    print("layer " + " ".join(f"{column:>12}" for column in COLUMNS))
    for number, layer in enumerate(sizes, 1):
        values = layer.means()
        scores.update({f"layer {number} {column}": value for column, value in zip(COLUMNS, values)})
        print(f"{number:5} " + " ".join(f"{value:12.3f}" for value in values))
    if args.json:
        command = shlex.join(["python", "examples/megalodon/norms.py", *sys.argv[1:]])
        write_result(args.json, make_result("norms", str(args.checkpoint), scores, likelihood.tokens, command))


if __name__ == "__main__":
    main()
