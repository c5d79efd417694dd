"""Options, presets and checks of the MEGA language model."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Union

from omegaconf import II, DictConfig

from .mega_config import LayerOptions, check_embedding_norm, complete


@dataclass
class MegaLanguageModelConfig(LayerOptions):
    """Command-line options of ``--arch mega_lm``, named as in the published code."""

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
        default=None, metadata={"help": "width of the first band of --adaptive-input (default: d)"}
    )
    no_affine_final_norm: bool = field(default=False, metadata={"help": "final norm without parameters"})
    share_decoder_input_output_embed: bool = field(
        default=False, metadata={"help": "one table for input and output embeddings"}
    )
    adaptive_input: bool = field(default=False, metadata={"help": "narrower input embeddings for rarer words"})
    adaptive_input_factor: float = field(default=4, metadata={"help": "by which each band of them is narrower"})
    adaptive_input_cutoff: Optional[str] = field(
        default=None,
        metadata={"help": "ends of the bands, comma separated (default: those of --adaptive-softmax-cutoff)"},
    )
    adaptive_softmax_cutoff: Optional[str] = field(
        default=None,
        metadata={"help": "adaptive softmax with these ends of bands, comma separated; with --criterion adaptive_loss"},
    )
    adaptive_softmax_dropout: float = field(
        default=0.0, metadata={"help": "dropout of the adaptive softmax's input and of its rarer bands"}
    )
    adaptive_softmax_factor: float = field(default=4, metadata={"help": "by which each band is narrower"})
    tie_adaptive_weights: bool = field(
        default=False, metadata={"help": "one table per band for adaptive input and softmax"}
    )
    tie_adaptive_proj: bool = field(
        default=False, metadata={"help": "one projection per band too (needs --tie-adaptive-weights)"}
    )
    max_target_positions: Optional[int] = II("task.max_target_positions")
    tokens_per_sample: int = II("task.tokens_per_sample")


# What every published language model has (MEGA, Table 9 and the published recipes).
_STREAMED = {"normalize_before": True, "no_affine_final_norm": True, "rel_pos_bias": "rotary"}

LM_PRESETS: Dict[str, Dict[str, Any]] = {
    # WikiText-103: 252,237,824 parameters with its 267,744 symbols.
    "mega_lm_adaptive_big": {
        "decoder_embed_dim": 1024,
        "decoder_hidden_dim": 2048,
        "decoder_z_dim": 256,
        "decoder_n_dim": 16,
        "decoder_layers": 16,
        "decoder_chunk_size": 1024,
        **_STREAMED,
        "truncation_length": 8192,
        "dropout": 0.3,
        "attention_dropout": 0.1,
        "hidden_dropout": 0.1,
        "activation_dropout": 0.1,
        "adaptive_input": True,
        "adaptive_softmax_cutoff": "20000,60000",
        "adaptive_softmax_dropout": 0.2,
        "tie_adaptive_weights": True,
        "tie_adaptive_proj": True,
    },
    # enwik8: 39,137,792 parameters with its 208 symbols.
    "mega_lm_enwik8_base": {
        "decoder_embed_dim": 512,
        "decoder_hidden_dim": 1024,
        "decoder_z_dim": 128,
        "decoder_n_dim": 16,
        "decoder_layers": 12,
        "decoder_chunk_size": 2048,
        **_STREAMED,
        "truncation_length": 8192,
        "dropout": 0.1,
        "share_decoder_input_output_embed": True,
    },
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
}


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
    if completed.decoder_input_dim not in (None, completed.decoder_embed_dim) and not completed.adaptive_input:
        raise ValueError(
            f"--decoder-input-dim {completed.decoder_input_dim} differs from --decoder-embed-dim "
            f"{completed.decoder_embed_dim}, which only --adaptive-input can do"
        )
    if completed.no_affine_final_norm and not completed.normalize_before:
        raise ValueError("--no-affine-final-norm: only --normalize-before models have a final norm")
    adaptive_softmax = completed.adaptive_softmax_cutoff is not None
    if completed.tie_adaptive_weights and not (completed.adaptive_input and adaptive_softmax):
        raise ValueError("--tie-adaptive-weights ties --adaptive-input to --adaptive-softmax-cutoff: give both")
    if completed.tie_adaptive_proj and not completed.tie_adaptive_weights:
        raise ValueError("--tie-adaptive-proj needs --tie-adaptive-weights")
    if completed.share_decoder_input_output_embed and (completed.adaptive_input or adaptive_softmax):
        raise ValueError(
            "--share-decoder-input-output-embed shares one plain table: with --adaptive-input and "
            "--adaptive-softmax-cutoff give --tie-adaptive-weights instead"
        )
    if completed.tie_adaptive_weights:
        for option in ("cutoff", "factor"):
            tables, softmax = completed[f"adaptive_input_{option}"], completed[f"adaptive_softmax_{option}"]
            if tables is not None and tables != softmax:
                raise ValueError(
                    f"--tie-adaptive-weights needs equal bands: --adaptive-input-{option} is {tables}, "
                    f"--adaptive-softmax-{option} is {softmax}"
                )
    return completed


def band_ends(option: str, value: str, symbols: int) -> List[int]:
    """Ends of the bands of an adaptive input or softmax, from a comma-separated list.

    Raises:
        ValueError: if they do not rise, or exceed the dictionary of ``symbols``.
    """
    try:
        ends = [int(part) for part in value.split(",")]
    except ValueError:
        ends = []
    if not ends or ends[0] < 1 or any(low >= high for low, high in zip(ends, ends[1:])):
        raise ValueError(f"{option} {value}: rising numbers of symbols are needed, for instance 20000,60000")
    if ends[-1] >= symbols:
        raise ValueError(f"{option} {value}: the dictionary has only {symbols} symbols; give smaller numbers")
    return ends
