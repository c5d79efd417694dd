"""Options, presets and checks of the MEGA language model."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Union

from omegaconf import II, DictConfig

from .mega_config import LayerOptions, check_embedding_norm, complete
from .tables import AdaptiveOptions, check_tables


@dataclass
class MegaLanguageModelConfig(AdaptiveOptions, LayerOptions):
    """Command-line options of ``--arch mega_lm``, named as in the published code."""

    decoder_embed_path: Optional[str] = field(default=None, metadata={"help": "pretrained embeddings"})
    decoder_embed_dim: int = field(default=512, metadata={"help": "width d"})
    decoder_hidden_dim: int = field(default=1024, metadata={"help": "width v of the attention's values"})
    decoder_ffn_embed_dim: Optional[int] = field(
        default=None, metadata={"help": "inner width of the FFN, 0 for none (default: --decoder-hidden-dim)"}
    )
    decoder_z_dim: int = field(default=128, metadata={"help": "width z of the shared query/key representation"})
    decoder_n_dim: int = field(default=16, metadata={"help": "EMA dimensions N per feature, 0 for no EMA"})
    decoder_layers: int = field(default=6, metadata={"help": "number of layers"})
    decoder_chunk_size: int = field(default=-1, metadata={"help": "attention chunk C, -1 for full attention"})
    decoder_input_dim: Optional[int] = field(
        default=None,
        metadata={"help": "width of the input embeddings, of --adaptive-input the first band's (default: d)"},
    )
    no_affine_final_norm: bool = field(default=False, metadata={"help": "final norm without parameters"})
    share_decoder_input_output_embed: bool = field(
        default=False, metadata={"help": "one table for input and output embeddings"}
    )
    max_target_positions: Optional[int] = II("task.max_target_positions")
    tokens_per_sample: int = II("task.tokens_per_sample")


def _preset(d: int, v: int, z: int, layers: int, chunk: int, **options: Any) -> Dict[str, Any]:
    """Values of one architecture, with what every published language model has (MEGA, Table 9 and the recipes)."""
    return {
        "decoder_embed_dim": d,
        "decoder_hidden_dim": v,
        "decoder_z_dim": z,
        "decoder_n_dim": 16,
        "decoder_layers": layers,
        "decoder_chunk_size": chunk,
        **_STREAMED,
        "truncation_length": 8192,
        **options,
    }


_STREAMED = {"normalize_before": True, "no_affine_final_norm": True, "rel_pos_bias": "rotary"}
_ADAPTIVE = {
    "dropout": 0.3,
    "attention_dropout": 0.1,
    "hidden_dropout": 0.1,
    "activation_dropout": 0.1,
    "adaptive_input": True,
    "adaptive_softmax_cutoff": "20000,60000",
    "adaptive_softmax_dropout": 0.2,
    "tie_adaptive_weights": True,
    "tie_adaptive_proj": True,
}
_WIKITEXT = _preset(1024, 2048, 256, 16, 1024, **_ADAPTIVE)

LM_PRESETS: Dict[str, Dict[str, Any]] = {
    # WikiText-103: 252,237,824 parameters with its 267,744 symbols.
    "mega_lm_adaptive_big": _WIKITEXT,
    "mega_lm_wiki103": _WIKITEXT,
    # enwik8: 39,137,792 parameters with its 208 symbols.
    "mega_lm_enwik8_base": _preset(512, 1024, 128, 12, 2048, dropout=0.1, share_decoder_input_output_embed=True),
    # Of the published code, in no table of the paper.
    "mega_lm_adaptive_base": _preset(768, 1536, 128, 16, 1024, **_ADAPTIVE),
    "mega_lm_big": _preset(1024, 2048, 256, 16, 1024, dropout=0.1),
    "mega_lm_enwik8_large": _preset(
        1024, 1536, 128, 24, 2048, dropout=0.2, attention_dropout=0.1, hidden_dropout=0.1,
        share_decoder_input_output_embed=True,
    ),
    # Ours: for tests and first steps.
    "mega_lm_tiny": {
        "decoder_embed_dim": 64,
        "decoder_hidden_dim": 128,
        "decoder_z_dim": 32,
        "decoder_n_dim": 8,
        "decoder_layers": 2,
        "decoder_chunk_size": 64,
        **_STREAMED,
        "share_decoder_input_output_embed": True,
    },
}  # fmt: skip


def complete_language_model(cfg: Union[DictConfig, Namespace]) -> DictConfig:
    """Fill and check a configuration of any origin; see :func:`complete`.

    Raises:
        ValueError: where options are out of range or contradict each other.
    """
    completed = complete(MegaLanguageModelConfig, cfg)
    given = vars(cfg) if isinstance(cfg, Namespace) else cfg
    if given.get("max_target_positions") is None:
        completed.max_target_positions = given.get("tokens_per_sample") or completed.max_target_positions
    check_embedding_norm(completed)
    if completed.decoder_layers < 1:
        raise ValueError(f"--decoder-layers {completed.decoder_layers}: must be at least 1")
    check_tables(completed)
    if completed.share_decoder_input_output_embed and completed.decoder_input_dim not in (
        None,
        completed.decoder_embed_dim,
    ):
        raise ValueError(
            f"--decoder-input-dim {completed.decoder_input_dim}: --share-decoder-input-output-embed needs a table as "
            f"wide as --decoder-embed-dim {completed.decoder_embed_dim}; leave out either of the two"
        )
    if completed.no_affine_final_norm and not completed.normalize_before:
        raise ValueError("--no-affine-final-norm: only --normalize-before models have a final norm")
    return completed
