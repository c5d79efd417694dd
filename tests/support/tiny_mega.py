"""A tiny MEGA encoder-decoder and batches for it."""

from argparse import Namespace
from types import SimpleNamespace

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY

from fairseq_mega.models.mega import MegaModel

PAD, EOS = 1, 2
TINY = {
    "encoder_embed_dim": 8,
    "encoder_hidden_dim": 12,
    "encoder_ffn_embed_dim": 10,
    "encoder_z_dim": 4,
    "encoder_n_dim": 3,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "max_source_positions": 40,
    "max_target_positions": 40,
}


def dictionary(symbols=20):
    built = Dictionary()
    for number in range(symbols):
        built.add_symbol(f"w{number}")
    return built


def task(symbols=20, target=None):
    source = dictionary(symbols)
    return SimpleNamespace(source_dictionary=source, target_dictionary=source if target is None else target)


def built(model, tiny, of_task, seed=0, arch=None, **options):
    """A model of the options ``tiny``, or of an architecture's, with others changed."""
    torch.manual_seed(seed)
    namespace = Namespace(**({**tiny, **options} if arch is None else options))
    if arch is not None:
        ARCH_CONFIG_REGISTRY[arch](namespace)
    return model.build_model(namespace, of_task)


def build(seed=0, arch=None, **options):
    return built(MegaModel, TINY, options.get("task", task()), seed, arch, **options)


def lively(model):
    """Move a new model away from its near-zero start, so that every part matters; float64, evaluation."""
    model = model.double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def batch(lengths=(7, 3, 5), left=False, extra=0, seed=1):
    """Source tokens ending in EOS, padded on one side to the longest plus ``extra``."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.full((len(lengths), max(lengths) + extra), PAD)
    for row, length in enumerate(lengths):
        sentence = torch.randint(4, 20, (length,), generator=generator)
        sentence[-1] = EOS
        tokens[row, slice(-length, None) if left else slice(length)] = sentence
    return tokens
