"""MEGALODON classifiers of the Long Range Arena and of raw speech: our interpretation of an unpublished architecture.

MEGALODON (Ma et al., NeurIPS 2024, Appendix C) names softmax, rotary positions, pre-norm with two-hop residual and
group norm, and "almost all" of MEGA's settings; no code was published. Three parts follow the authors' development code
between the two papers (XuezheMax/fairseq-apollo): an EMA whose backward direction excludes the present, a projection
with SiLU before the mean, and features of products and differences for two documents. examples/megalodon/README.md
lists the differences from that code.
"""

from typing import Any, List, Optional

import torch
import torch.nn.functional as F
from fairseq.models import register_model
from omegaconf import DictConfig
from torch import Tensor, nn

from fairseq_mega.modules.embedding import TokenEmbedding
from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.initialization import matrix
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from fairseq_mega.modules.megalodon.norms import GroupNorm
from fairseq_mega.modules.padding import zero_padding
from fairseq_mega.modules.sequence_encoder import SequenceEncoder

from .classifier import OF_EVERY_CLASSIFIER, SequenceClassifier, input_table, padding_index
from .options.configurations import megalodon_layer_config
from .options.option import of_side, with_options
from .options.table import ACTIVATION, CLASSIFIER, EMA_NORM, MEGALODON, PRE_NORM


@with_options(
    *of_side("encoder", MEGALODON),
    EMA_NORM,
    ACTIVATION._replace(help="no effect: MEGALODON uses SiLU"),
    PRE_NORM._replace(help="no effect: MEGALODON has pre-norms"),
    *CLASSIFIER,
    **OF_EVERY_CLASSIFIER,
    encoder_hidden_dim={"default": 256},
    encoder_z_dim={"default": 64, "alias": "--z-dim"},
    encoder_n_dim={"alias": "--n-dim"},
    encoder_chunk_size={"alias": "--chunk-size"},
    classifier_layers={"default": 0},
)
class MegalodonClassifierConfig:
    """Command-line options of ``--arch megalodon_lra``."""


class ProjectedEncoder(SequenceEncoder):
    """Bidirectional MEGALODON layers, a group norm, and ``SiLU(W x + b + x)``.

    Args:
        embedding: see :class:`SequenceEncoder`.
        config: shape of each layer.
        layers: number of layers.
        padding_idx: token that marks padding, None for real numbers.
        pad: compute the padding of texts.
    """

    def __init__(
        self, embedding: nn.Module, config: MegalodonLayerConfig, layers: int, padding_idx: Optional[int], pad: bool
    ) -> None:
        super().__init__(
            embedding,
            [MegalodonLayer(config, index) for index in range(layers)],
            GroupNorm(config.embed_dim, config.norm_groups),
            padding_idx,
            config.chunk_size,
            config.checkpoint_activations,
            pad,
        )
        self.final_proj = matrix(config.embed_dim, config.embed_dim, mode=config.init_mode, bias=True)

    def encode(self, inputs: Tensor, context: LayerContext, positions: Optional[Tensor] = None) -> Tensor:
        """Encode as :meth:`SequenceEncoder.encode`, followed by ``silu(W x + b + x)``; padded positions are zero."""
        x = super().encode(inputs, context, positions)
        return zero_padding(F.silu(self.final_proj(x) + x), context.padding_mask)


@register_model("megalodon_lra", dataclass=MegalodonClassifierConfig)
class MegalodonClassifier(SequenceClassifier):
    """MEGALODON classifier: ``--arch megalodon_lra`` and its presets, ``preset_names("megalodon_lra")``."""

    options = MegalodonClassifierConfig

    def build_encoder(self, cfg: DictConfig, task: Any) -> SequenceEncoder:
        """Build MEGALODON layers; embeddings of text are scaled."""
        config = megalodon_layer_config(cfg, "encoder", "max_positions")
        embedding = TokenEmbedding(input_table(cfg, task), cfg.dropout, scale=task.input_type == "text")
        return ProjectedEncoder(embedding, config, cfg.encoder_layers, padding_index(task), cfg.pad_batches)

    def joined_vectors(self) -> int:
        """Return the width of :meth:`joined`, in multiples of d."""
        return 1 if self.documents == 1 else 4

    def joined(self, vectors: List[Tensor]) -> Tensor:
        """Return the vector of one document, or ``[a, b, a b, a - b]`` (B, 4 d) of two documents a and b."""
        if len(vectors) == 1:
            return vectors[0]
        a, b = vectors
        return torch.cat([a, b, a * b, a - b], dim=-1)
