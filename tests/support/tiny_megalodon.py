"""A tiny MEGALODON language model."""

from argparse import Namespace

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY

from fairseq_mega.models.megalodon_lm import MegalodonLanguageModel
from tests.support.tiny_lm import task

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
    """A model of TINY options, or of an architecture's, with others changed."""
    torch.manual_seed(seed)
    namespace = Namespace(**({**TINY, **options} if arch is None else options))
    if arch is not None:
        ARCH_CONFIG_REGISTRY[arch](namespace)
    return MegalodonLanguageModel.build_model(namespace, task(symbols))
