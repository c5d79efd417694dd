"""A tiny S4D language model."""

from fairseq_mega.models.s4d_lm import S4dLanguageModel
from tests.support.tiny_lm import task
from tests.support.tiny_mega import built

TINY = {
    "decoder_embed_dim": 8,
    "decoder_n_dim": 4,
    "decoder_layers": 2,
    "dropout": 0.0,
    "normalize_before": True,
    "share_decoder_input_output_embed": True,
    "max_target_positions": 64,
}


def build(seed=0, symbols=20, **options):
    return built(S4dLanguageModel, TINY, task(symbols), seed, **options)
