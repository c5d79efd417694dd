"""Names of tensors in the published codes, and ours: one table for both directions.

The table has the names of facebookresearch/mega. Names of transformers' former MegaModel and of XuezheMax/mega-image
are renamed to these first. Our names follow the paper's symbols; facebookresearch/mega exchanges "alpha" and "delta".
"""

import re
from functools import lru_cache
from typing import Iterable, List, Tuple

Pairs = Tuple[Tuple[str, str], ...]

# Published name -> ours, for the parts of a layer.
LAYER: Pairs = (
    ("mega_layer.norm.norm.", "attention.norm."),
    ("mega_layer.move.delta", "attention.ema.alpha"),
    ("mega_layer.move.alpha", "attention.ema.delta"),
    ("mega_layer.move.beta", "attention.ema.beta"),
    ("mega_layer.move.gamma", "attention.ema.eta"),
    ("mega_layer.move.omega", "attention.ema.omega"),
    ("mega_layer.v_proj.", "attention.value_proj."),
    ("mega_layer.mx_proj.", "attention.gate_proj."),
    ("mega_layer.h_proj.", "attention.output_proj."),
    ("mega_layer.gamma", "attention.kappa"),
    ("mega_layer.beta", "attention.mu"),
    ("mega_layer.rel_pos_bias.rel_pos_bias", "attention.relative_bias.weight"),
    ("mega_layer.rel_pos_bias.", "attention.relative_bias."),
    ("cross_attn.norm.norm.", "cross_attention.norm."),
    ("cross_attn.k_proj.", "cross_attention.key_proj."),
    ("cross_attn.v_proj.", "cross_attention.value_proj."),
    ("cross_attn.q_proj.", "cross_attention.query_proj."),
    ("cross_attn.h_proj.", "cross_attention.output_proj."),
    ("cross_attn.rel_pos_bias.rel_pos_bias", "cross_attention.relative_bias.weight"),
    ("cross_attn.rel_pos_bias.", "cross_attention.relative_bias."),
    ("nffn.norm.norm.", "feed_forward.norm."),
    ("nffn.fc", "feed_forward.fc"),
)
# Published name -> ours, outside the layers; of two names with the same beginning the longer comes first.
MODEL: Pairs = (
    ("embed_tokens.", "embedding.tokens."),
    ("embed_types.", "embedding.types."),  # of transformers alone
    ("embed_norm.norm.", "embedding.norm."),
    ("project_in_dim.", "embedding.projection."),
    ("final_norm.norm.", "final_norm."),
)
CHARACTERS: Pairs = (("embed_tokens.embed.", "embedding.tokens."),)  # the table of a classifier of text
CLASSIFIER: Pairs = (
    ("encoder.encoder.", "encoder."),
    ("classifier.{}.0.", "head.hidden.{}."),  # {} is an index
    ("sentence_projection_layer.", "head.output."),
)
# transformers' name -> that of facebookresearch/mega, or ours where facebookresearch/mega has no such tensor.
TRANSFORMERS: Tuple[Pairs, ...] = (
    (
        ("ema_gate.damping_factor", "move.delta"),
        ("ema_gate.decay_factor", "move.alpha"),
        ("ema_gate.ema_expansion_matrix", "move.beta"),
        ("ema_gate.kernel_projection_matrix", "move.gamma"),
        ("ema_gate.residual_weight", "move.omega"),
        ("rel_pos_bias.b_param", "rel_pos_bias.beta"),
        ("qk_weight", "gamma"),
        ("qk_bias", "beta"),
    ),
    (
        ("mega.layers.", "encoder.layers."),
        ("mega.embedding_layer.word_embeddings.", "encoder.embed_tokens."),
        ("mega.embedding_layer.token_type_embeddings.", "encoder.embed_types."),
        ("dense.", "prediction.hidden."),
        ("mlm_head.", "prediction.output."),
    ),
)
# XuezheMax/mega-image's names, whose "alpha" and "delta" are the paper's -> those of facebookresearch/mega, or ours.
IMAGES: Tuple[Pairs, ...] = (
    (("move.alpha", "move.delta"), ("move.delta", "move.alpha")),
    (
        ("blocks.", "encoder.layers."),
        ("patch_embed.pemb.proj.", "encoder.embedding.patches."),
        ("pos_embed", "encoder.embedding.positions"),
        ("final_norm.norm.", "encoder.final_norm."),
        ("out_proj.fc.", "head.hidden."),
        ("head.", "head.output."),
    ),
)


def tables(classifier: bool, text: bool) -> List[Pairs]:
    """Return the tables for a classifier (of ``text`` or of numbers), or for another model."""
    return [*([CLASSIFIER] if classifier else []), LAYER, (*(CHARACTERS if text else ()), *MODEL)]


def tables_of_published(names: Iterable[str]) -> List[Pairs]:
    """Return the tables for published names."""
    names = list(names)
    if any(name.startswith("mega.") for name in names):
        return tables_of_transformers()
    if any(name.startswith(("blocks.", "patch_embed.")) for name in names):
        return tables_of_images()
    classifier = any(name.startswith(("encoder.encoder.", "classifier.", "sentence_projection_")) for name in names)
    return tables(classifier, any(f".{CHARACTERS[0][0]}" in name for name in names))


def tables_of_transformers() -> List[Pairs]:
    """Return the tables for transformers' MegaForMaskedLM."""
    return [*TRANSFORMERS, *tables(classifier=False, text=False)]


def tables_of_images() -> List[Pairs]:
    """Return the tables for an image classifier."""
    return [*IMAGES, LAYER]


def to_ours(name: str, tables: Iterable[Pairs]) -> str:
    """Return our name of a published tensor."""
    for pairs in tables:
        name = _renamed(name, pairs)
    return name


def to_published(name: str, tables: Iterable[Pairs]) -> str:
    """Return the published name of a tensor of ours."""
    for pairs in reversed(list(tables)):
        name = _renamed(name, tuple((ours, published) for published, ours in pairs))
    return name


def _renamed(name: str, pairs: Pairs) -> str:
    """Apply the first pair whose old name begins a part of the dotted name."""
    for pattern, replacement in _compiled(pairs):
        changed, times = pattern.subn(replacement, name, count=1)
        if times:
            return changed
    return name


@lru_cache(maxsize=None)
def _compiled(pairs: Pairs) -> List[Tuple["re.Pattern[str]", str]]:
    return [
        (re.compile(r"(?:^|(?<=\.))" + re.escape(old).replace(r"\{\}", r"(\d+)")), new.replace("{}", r"\1"))
        for old, new in pairs
    ]
