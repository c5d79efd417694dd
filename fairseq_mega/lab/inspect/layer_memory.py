"""Bytes that a layer keeps for each token of a sequence until the backward pass, in the widths of its configuration.

Numbers are float32; under autocast to bfloat16, what products read is bfloat16, beside float32 where both are read.
Sums, norms and the moving average stay float32. Attention computes its weights again, so that without chunks it keeps
as much for each token as within them, less what whole chunks take. The tests compare every term with the allocator.
"""

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig

WIDE, NARROW = 4, 2  # bytes of float32 and bfloat16
KEPT_NORMS = ("batchnorm", "syncbatchnorm")  # whose results the FFN keeps; it computes the others' again


def mega_layer_bytes(config: MegaLayerConfig, bf16: bool = False) -> int:
    """Bytes that a layer of MEGA keeps for each token.

    Of width d both sub-layers' sums and the normed input of the first, the EMA, two gates and the projected attention;
    of width v the values, their gate and the attended ones; of width z the shared representation, and the queries in
    whole chunks; of width f the hidden layer. SiLU, keys and the FFN's norm are computed again. Without chunks a rotary
    bias is made of vectors as long as the sequence. Dropout keeps a seed.
    """
    d, v, z, f = config.embed_dim, config.hidden_dim, config.z_dim, config.ffn_dim
    number, chunks = NARROW if bf16 else WIDE, config.chunk_size > 0
    if bf16:
        kept = (2 * WIDE + 5 * NARROW if config.normalize_before else 5 * WIDE + 2 * NARROW) * d
        kept += number * d if config.norm in KEPT_NORMS and config.normalize_before else 0
    else:
        kept = number * (8 if config.norm in KEPT_NORMS else 7) * d
    kept += number * (3 * v + (2 if chunks else 1) * z + f)
    kept += 2 * WIDE if config.attention_function == "softmax" else 0
    kept += WIDE * (2 * z + 2) if config.relative_bias == "rotary" and not chunks else 0
    return kept


def megalodon_layer_bytes(config: MegalodonLayerConfig, bf16: bool = False) -> int:
    """Bytes that a layer of MEGALODON keeps for each token.

    Of width d both sub-layers' inputs, the normed input, the EMA and its sum; of width v the values, their gate and the
    attended ones; of width z the shared representation, and the queries in whole chunks, where several heads also have
    keys and values of their own; of width f the hidden layer and its gate. See :func:`mega_layer_bytes` for the rest.
    """
    d, v, z, f, heads = config.embed_dim, config.hidden_dim, config.z_dim, config.ffn_dim, config.heads
    number, chunks = NARROW if bf16 else WIDE, config.chunk_size > 0
    kept = (5 * WIDE + (2 * NARROW if bf16 else 0)) * d + number * 3 * v + number * (2 if chunks else 1) * z
    kept += number * (z + v) if heads > 1 and chunks else 0
    kept += number * (2 if config.swiglu else 1) * f + 2 * WIDE * heads + (number * d if config.layer_scale else 0)
    return kept
