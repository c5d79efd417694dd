"""Regularisation of the layers."""

from dataclasses import dataclass, field

from fairseq.dataclass import FairseqDataclass

from .revised import revised


@dataclass
class Dropouts(FairseqDataclass):
    """Dropouts of any layer."""

    dropout: float = field(default=0.1, metadata={"help": "dropout of embeddings and of each sub-layer's output"})
    attention_dropout: float = field(default=0.0, metadata={"help": "dropout of attention weights"})
    activation_dropout: float = field(default=0.0, metadata={"help": "dropout after the activation of the FFN"})


@dataclass
@revised(help={"dropout": "dropout of embeddings, EMA output, candidate and FFN output"})
class MegaDropouts(Dropouts):
    """Dropouts of MEGA's layers."""

    hidden_dropout: float = field(default=0.0, metadata={"help": "dropout of the attention's values"})
    feature_dropout: bool = field(default=False, metadata={"help": "drop whole features instead of single elements"})


@dataclass
class MegalodonDropouts(FairseqDataclass):
    """Dropouts of MEGALODON's layers."""

    dropout: float = field(default=0.0, metadata={"help": "dropout of embeddings and of each sub-layer's output"})
    attention_dropout: float = field(default=0.0, metadata={"help": "dropout in the attention, see --attention-drops"})
    hidden_dropout: float = field(
        default=0.0, metadata={"help": "dropout of the EMA's and the attention's output, and within the FFN"}
    )
