"""Options and checks of every language model."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Optional, Type, Union

from fairseq.dataclass import FairseqDataclass
from omegaconf import II, DictConfig

from .completion import check_at_least, complete
from .dropouts import LateDropout
from .tables import DecoderTables, check_tables


@dataclass
class LanguageModelOptions(LateDropout, DecoderTables):
    """Command-line options of every language model, beside the shape and the kind of its layers."""

    decoder_input_dim: Optional[int] = field(
        default=None,
        metadata={"help": "width of the input embeddings, of --adaptive-input the first band's (default: d)"},
    )
    max_target_positions: Optional[int] = II("task.max_target_positions")
    tokens_per_sample: int = II("task.tokens_per_sample")


@dataclass
class DocumentOptions(FairseqDataclass):
    """Options of language models that can tell documents apart."""

    reset_at_document_ends: bool = field(
        default=False,
        metadata={
            "help": "</s>, the end of every line, ends a document: neither attention nor memory nor statistics of "
            "norms reach from one into the next"
        },
    )


def complete_language_model(dataclass_type: Type[FairseqDataclass], cfg: Union[DictConfig, Namespace]) -> DictConfig:
    """Fill and check a configuration of any origin; see :func:`complete`.

    Raises:
        ValueError: where options are out of range or contradict each other.
    """
    completed = complete(dataclass_type, cfg)
    given = vars(cfg) if isinstance(cfg, Namespace) else cfg
    if given.get("max_target_positions") is None:
        completed.max_target_positions = given.get("tokens_per_sample") or completed.max_target_positions
    check_at_least(completed, {"decoder_layers": 1, "late_dropout": 0})
    check_tables(completed)
    if completed.share_decoder_input_output_embed and completed.decoder_input_dim not in (
        None,
        completed.decoder_embed_dim,
    ):
        raise ValueError(
            f"--decoder-input-dim {completed.decoder_input_dim}: --share-decoder-input-output-embed needs a table as "
            f"wide as --decoder-embed-dim {completed.decoder_embed_dim}; leave out either of the two"
        )
    return completed
