"""A tiny Llama-style language model."""

from fairseq_mega.models.llama_lm import LlamaLanguageModel
from tests.support.tiny_lm import task
from tests.support.tiny_mega import built

TINY = {
    "decoder_embed_dim": 8,
    "decoder_ffn_embed_dim": 10,
    "decoder_layers": 2,
    "decoder_attention_heads": 2,
    "dropout": 0.0,
    "share_decoder_input_output_embed": True,
    "max_target_positions": 64,
}


def build(seed=0, symbols=20, **options):
    return built(LlamaLanguageModel, TINY, task(symbols), seed, **options)
