"""Regularisation of the layers."""

from dataclasses import dataclass, field

from fairseq.dataclass import FairseqDataclass

from .revised import revised


@dataclass
class OutputDropout(FairseqDataclass):
    """Dropout of embeddings and of what the layers give."""

    dropout: float = field(default=0.1, metadata={"help": "dropout of embeddings and of each sub-layer's output"})


@dataclass
class LateDropout(FairseqDataclass):
    """When dropout begins."""

    late_dropout: int = field(
        default=0,
        metadata={
            "help": "updates without any dropout at the beginning of a training, in which a model that reads its text "
            "few times learns faster (Liu et al., ICML 2023)"
        },
    )


@dataclass
class LayerDropouts(OutputDropout):
    """Dropouts of layers with attention."""

    attention_dropout: float = field(default=0.0, metadata={"help": "dropout of attention weights"})


@dataclass
class HiddenDropout(FairseqDataclass):
    """Dropout of a gated attention."""

    hidden_dropout: float = field(default=0.0, metadata={"help": "dropout of the attention's values"})


@dataclass
class Dropouts(LayerDropouts):
    """Dropouts of a Transformer's layers."""

    activation_dropout: float = field(default=0.0, metadata={"help": "dropout after the activation of the FFN"})


@dataclass
@revised(help={"dropout": "dropout of embeddings, EMA output, candidate and FFN output"})
class MegaDropouts(HiddenDropout, Dropouts):
    """Dropouts of MEGA's layers."""

    feature_dropout: bool = field(default=False, metadata={"help": "drop whole features instead of single elements"})


@dataclass
@revised(
    defaults={"dropout": 0.0},
    help={
        "attention_dropout": "dropout in the attention, see --attention-drops",
        "hidden_dropout": "dropout of the EMA's and the attention's output, and within the FFN",
    },
)
class MegalodonDropouts(HiddenDropout, LayerDropouts):
    """Dropouts of MEGALODON's layers."""
