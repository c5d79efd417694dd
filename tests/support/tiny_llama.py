"""A tiny Llama-style language model."""

from argparse import Namespace

import torch

from fairseq_mega.models.llama_lm import LlamaLanguageModel
from tests.support.tiny_lm import task

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
    """A model of TINY options with others changed."""
    torch.manual_seed(seed)
    return LlamaLanguageModel.build_model(Namespace(**{**TINY, **options}), task(symbols))
