"""Tiny MEGA encoders that predict masked tokens."""

from types import SimpleNamespace
from typing import Any

from fairseq_mega.models.mega_masked_lm import MegaMaskedLanguageModel
from tests.support.tiny_mega import built, dictionary

TINY = {"encoder_embed_dim": 8, "encoder_hidden_dim": 12, "encoder_z_dim": 4, "encoder_n_dim": 3, "encoder_layers": 2}
ROTARY = {"encoder_chunk_size": 4, "rel_pos_bias": "rotary", "normalize_before": True, "no_final_norm": True}
TOKEN_TYPES = {
    "token_types": 2,
    "no_hidden_layer": True,
    "share_encoder_input_output_embed": True,
    "no_scale_embedding": True,
}


def task(symbols: int = 16) -> SimpleNamespace:
    return SimpleNamespace(source_dictionary=dictionary(symbols))


def build(seed: int = 0, **options: Any) -> MegaMaskedLanguageModel:
    return built(MegaMaskedLanguageModel, TINY, task(), seed, **options)
