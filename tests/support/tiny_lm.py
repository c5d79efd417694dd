"""A tiny MEGA language model, and ways to read with one."""

from types import SimpleNamespace

import torch
from torch import nn

from fairseq_mega.models.mega_lm import MegaLanguageModel
from tests.support.tiny_mega import built, dictionary

TINY = {
    "decoder_embed_dim": 8,
    "decoder_hidden_dim": 12,
    "decoder_ffn_embed_dim": 10,
    "decoder_z_dim": 4,
    "decoder_n_dim": 3,
    "decoder_layers": 2,
    "decoder_chunk_size": 5,
    "normalize_before": True,
    "no_affine_final_norm": True,
    "rel_pos_bias": "rotary",
    "share_decoder_input_output_embed": True,
    "max_target_positions": 64,
}
ADAPTIVE = {
    "share_decoder_input_output_embed": False,
    "adaptive_input": True,
    "adaptive_input_factor": 2.0,
    "adaptive_softmax_factor": 2.0,
    "adaptive_softmax_cutoff": "6,13",
    "tie_adaptive_weights": True,
    "tie_adaptive_proj": True,
}


def task(symbols=20):
    symbols = dictionary(symbols)
    return SimpleNamespace(source_dictionary=symbols, target_dictionary=symbols, dictionary=symbols)


def build(seed=0, arch=None, symbols=20, **options):
    return built(MegaLanguageModel, TINY, task(symbols), seed, arch, **options)


def tokens(batch, length, seed=1, symbols=24):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(2, symbols, (batch, length), generator=generator)


def log_probs(model, read):
    """Log probabilities of a whole text, (B, L, V), float32."""
    return model.get_normalized_probs(model(read), log_probs=True).float()


def advance(model, pieces):
    """Log probabilities after each piece, (B, pieces, V), float32 as those of fairseq."""
    state, found = None, []
    for piece in pieces:
        scores, state = model.decoder.advance(piece, state)
        found.append(scores.float())
    return torch.stack(found, dim=1)


class Recomputing(nn.Module):
    """The same model without memory: every step reads everything again."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, read, **unused):
        return self.model(read)

    def get_normalized_probs(self, *args, **kwargs):
        return self.model.get_normalized_probs(*args, **kwargs)

    def max_decoder_positions(self):
        return self.model.max_decoder_positions()
