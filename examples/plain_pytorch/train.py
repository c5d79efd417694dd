"""A language model of MEGA layers in a plain PyTorch loop: it learns to repeat what it has read.

Each text is a line of random symbols and the same line again. In training the model reads whole texts; at the end it
reads new lines and writes them once more, symbol by symbol, with the state of each layer carried along.

    python examples/plain_pytorch/train.py            # less than a minute on a CPU
    python examples/plain_pytorch/train.py --smoke    # seconds
"""

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_mega.modules import LayerContext, MegaLayer, MegaLayerConfig

SYMBOLS = 16


class LanguageModel(nn.Module):
    """Causal MEGA layers between a table and a softmax."""

    def __init__(self, layers: int, line: int) -> None:
        super().__init__()
        width = 64
        config = MegaLayerConfig(
            embed_dim=width,
            hidden_dim=2 * width,
            z_dim=32,
            ffn_dim=2 * width,
            chunk_size=2 * line,
            normalize_before=True,
        )
        self.table = nn.Embedding(SYMBOLS, width)
        self.layers = nn.ModuleList(MegaLayer(config) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        nn.init.normal_(self.table.weight, std=width**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits (B, L, symbols) of the token after each of tokens (B, L)."""
        x = self.table(tokens)
        for layer in self.layers:
            x = layer(x).hidden
        return F.linear(self.norm(x), self.table.weight)

    @torch.no_grad()
    def repeat(self, line: Tensor) -> Tensor:
        """What the model writes after a line (B, L): L tokens, one by one, each layer's state carried along."""
        stream, states = LayerContext(return_state=True), [(None, None)] * len(self.layers)
        tokens, written = line, []
        for _ in range(line.size(1)):
            x = self.table(tokens)
            for index, layer in enumerate(self.layers):
                out = layer(x, stream, *states[index])
                x, states[index] = out.hidden, (out.memory, out.cache)
            tokens = F.linear(self.norm(x[:, -1:]), self.table.weight).argmax(-1)
            written.append(tokens)
        return torch.cat(written, dim=1)


def main() -> None:
    """Train, and print the loss on the way and the share of symbols that are repeated correctly at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="a small model for a few steps")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    steps, layers, line = (120, 1, 4) if options.smoke else (400, 2, 12)
    torch.manual_seed(1)
    model = LanguageModel(layers, line).to(options.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    for step in range(1, steps + 1):
        half = torch.randint(SYMBOLS, (32, line), device=options.device)
        text = torch.cat([half, half], dim=1)
        logits = model(text[:, :-1])[:, line - 1 :]  # the first half cannot be foreseen
        loss = F.cross_entropy(logits.flatten(0, 1), half.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % (steps // 10) == 0 or step == 1:
            print(f"step {step:5} loss {loss.item():.4f}", flush=True)
    half = torch.randint(SYMBOLS, (64, line), device=options.device)
    print(f"repeated correctly: {(model.repeat(half) == half).float().mean():.1%}")


if __name__ == "__main__":
    main()
