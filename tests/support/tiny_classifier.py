"""Tiny classifiers, tasks for them without data, and batches."""

from argparse import Namespace
from types import SimpleNamespace

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

from fairseq_mega.models.options.table import INPUT_TYPES
from fairseq_mega.models.presets import preset
from tests.support.tiny_mega import PAD, dictionary

COMMON = {
    "encoder_embed_dim": 8,
    "encoder_layers": 2,
    "classifier_out_dim": 6,
    "max_positions": 40,
    "sentence_class_num": 3,
}
MEGA = {**COMMON, "encoder_hidden_dim": 12, "encoder_ffn_embed_dim": 10, "encoder_z_dim": 4, "encoder_n_dim": 3}
TINY = {
    "mega_lra": MEGA,
    "megalodon_lra": {**MEGA, "encoder_z_dim": 8, "encoder_attention_heads": 2, "norm_num_groups": 2},
    "s4d_lra": {**COMMON, "encoder_n_dim": 6, "normalize_before": True},
    "transformer_lra": {
        **COMMON,
        "encoder_ffn_embed_dim": 12,
        "encoder_attention_heads": 2,
        "normalize_before": True,
    },
}


def task(kind="text", documents=1, symbols=20):
    """The attributes of a task that a model reads."""
    text = kind == "text"
    return SimpleNamespace(
        input_type=kind,
        documents=documents,
        dictionary=dictionary(symbols) if text else None,
        label_dictionary=dictionary(3) if text else None,
    )


def of_arch(arch, tiny, of_task, seed, **options):
    """A model of the options ``tiny`` with others changed, and the architecture's defaults, if it has some."""
    torch.manual_seed(seed)
    values = Namespace(**{**tiny, **options})
    if arch in ARCH_CONFIG_REGISTRY:
        ARCH_CONFIG_REGISTRY[arch](values)
    return ARCH_MODEL_REGISTRY[arch].build_model(values, of_task)


def build(arch="mega_lra", kind="text", documents=1, symbols=20, seed=0, **options):
    return of_arch(arch, TINY.get(arch, {}), task(kind, documents, symbols), seed, **options)


def with_inputs(archs):
    """Pairs of an architecture and a kind of input: both kinds where the architecture leaves it open."""
    return [(arch, kind) for arch in archs for kind in INPUT_TYPES if preset(arch).get("input_type", kind) == kind]


def parameters(module):
    return sum(parameter.numel() for parameter in module.parameters())


def padded(rows, extra=0):
    """Texts of unequal lengths as a batch, padded on the right."""
    length = max(map(len, rows)) + extra
    return torch.stack([torch.cat([row, row.new_full((length - len(row),), PAD)]) for row in rows])


def texts(lengths, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(4, 20, (length,), generator=generator) for length in lengths]
