"""Memory and time of MEGALODON's sizes on paper: computed from their widths, measured nowhere."""

from argparse import Namespace
from pathlib import Path
from typing import Any, List, Sequence

from fairseq_mega.lab.inspect.layer_memory import WIDE, megalodon_layer_bytes
from fairseq_mega.lab.inspect.memory import GIB, model_of
from fairseq_mega.lab.runs.text_tables import Table
from fairseq_mega.models.megalodon_lm import complete_megalodon
from fairseq_mega.models.options.layer_config import megalodon_layer_config
from fairseq_mega.models.presets import preset

SIZES = {"11m": 260, "200m": 32000, "1b3": 32000, "1b3_pg19": 32000, "7b": 32000}  # presets to symbols
DEVICE = 100e12  # operations per second that a device sustains
COLUMNS = (
    *("", "parameters", "training state", "activations per token", "the same, recomputed", "GFLOP per token"),
    "tokens/s at 100 TFLOP/s",
)


def recomputed(cfg: Any, kept: int) -> int:
    """Bytes of ``kept`` for each token that are left with --checkpoint-activations.

    Of every layer its input alone, and all of the one whose pass is repeated.
    """
    around = kept - cfg.decoder_layers * layer_bytes(cfg)
    return around + layer_bytes(cfg) + WIDE * cfg.decoder_layers * cfg.decoder_embed_dim


def layer_bytes(cfg: Any) -> int:
    """Bytes that a layer keeps for each token."""
    return megalodon_layer_bytes(megalodon_layer_config(cfg, "decoder", "max_target_positions"))


def matrices(cfg: Any) -> int:
    """Weights of a layer's matrices, each of which multiplies every token once."""
    d, v, z, f = cfg.decoder_embed_dim, cfg.decoder_hidden_dim, cfg.decoder_z_dim, cfg.decoder_ffn_embed_dim
    return d * (2 * v + z + d) + v * d + (3 if cfg.swiglu else 2) * d * f


def operations(cfg: Any, symbols: int) -> float:
    """Floating-point operations of training for each token.

    Forward two for each weight of a matrix, and for each token that is attended to two for each of the z and v
    features, half of a chunk's tokens in the mean; backward twice as many. Norms and moving averages are left out.
    """
    attention = (cfg.decoder_z_dim + cfg.decoder_hidden_dim) * cfg.decoder_chunk_size
    per_layer = 2 * matrices(cfg) + attention
    return 3.0 * (cfg.decoder_layers * per_layer + 2 * cfg.decoder_embed_dim * symbols)


def row(size: str, symbols: int) -> List[str]:
    """Cells of a size."""
    name = f"megalodon_lm_{size}"
    cfg = complete_megalodon(Namespace(**preset(name)))
    step, parameters = model_of(name, symbols)
    work = operations(cfg, symbols)
    return [
        size,
        f"{parameters:,}",
        f"{step.state / GIB:,.1f} GiB",
        f"{step.token / 1024:,.0f} KiB",
        f"{recomputed(cfg, step.token) / 1024:,.0f} KiB",
        f"{work / 1e9:.2g}",
        f"{float(f'{DEVICE / work:.2g}'):,.0f}",
    ]


def megalodon(folder: Path, words: Sequence[str]) -> Table:
    """A row for each size."""
    return Table(COLUMNS, [row(size, symbols) for size, symbols in SIZES.items()])
