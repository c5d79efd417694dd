"""A tiny MEGALODON language model."""

from fairseq_mega.models.megalodon_lm import MegalodonLanguageModel
from tests.support.tiny_lm import task
from tests.support.tiny_mega import built

TINY = {
    "decoder_embed_dim": 8,
    "decoder_hidden_dim": 12,
    "decoder_ffn_embed_dim": 10,
    "decoder_z_dim": 8,
    "decoder_n_dim": 3,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "decoder_chunk_size": 5,
    "norm_num_groups": 2,
    "swiglu": True,
    "share_decoder_input_output_embed": True,
    "max_target_positions": 64,
}


def build(seed=0, arch=None, symbols=20, **options):
    return built(MegalodonLanguageModel, TINY, task(symbols), seed, arch, **options)
