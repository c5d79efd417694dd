"""Tables at both ends of a decoder: from a file, shared, or adaptive."""

from dataclasses import dataclass, field
from typing import Optional

from fairseq.dataclass import FairseqDataclass
from omegaconf import DictConfig


@dataclass
class DecoderTables(FairseqDataclass):
    """Options of a decoder's tables, named as in the published code."""

    decoder_embed_path: Optional[str] = field(default=None, metadata={"help": "pretrained embeddings"})
    share_decoder_input_output_embed: bool = field(
        default=False, metadata={"help": "one table for input and output embeddings"}
    )
    adaptive_input: bool = field(
        default=False, metadata={"help": "narrower input embeddings of the decoder for rarer words"}
    )
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


def check_tables(cfg: DictConfig) -> None:
    """Raise a ValueError where options of the tables of a completed configuration contradict each other."""
    adaptive_softmax = cfg.adaptive_softmax_cutoff is not None
    if cfg.adaptive_input and cfg.decoder_embed_path:
        raise ValueError("--decoder-embed-path fills one plain table: leave out --adaptive-input or the former")
    if cfg.tie_adaptive_weights and not (cfg.adaptive_input and adaptive_softmax):
        raise ValueError("--tie-adaptive-weights ties --adaptive-input to --adaptive-softmax-cutoff: give both")
    if cfg.tie_adaptive_proj and not cfg.tie_adaptive_weights:
        raise ValueError("--tie-adaptive-proj needs --tie-adaptive-weights")
    if cfg.share_decoder_input_output_embed and (cfg.adaptive_input or adaptive_softmax):
        raise ValueError(
            "--share-decoder-input-output-embed shares one plain table: with --adaptive-input and "
            "--adaptive-softmax-cutoff give --tie-adaptive-weights instead"
        )
    if cfg.tie_adaptive_weights:
        for option in ("cutoff", "factor"):
            tables, softmax = cfg[f"adaptive_input_{option}"], cfg[f"adaptive_softmax_{option}"]
            if tables is not None and tables != softmax:
                raise ValueError(
                    f"--tie-adaptive-weights needs equal bands: --adaptive-input-{option} is {tables}, "
                    f"--adaptive-softmax-{option} is {softmax}"
                )
