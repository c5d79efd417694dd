"""MEGA classifiers of images (MEGA, Ma et al., ICLR 2023, 4.4 and Table 11)."""

from argparse import Namespace
from typing import Any, Optional, Union

from fairseq.models import register_model
from omegaconf import DictConfig
from torch import Tensor

from fairseq_mega.modules.images import ImageHead, PatchEmbedding
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.norm import build_norm
from fairseq_mega.modules.sequence_encoder import SequenceEncoder

from .image_classifier import ImageClassifier
from .options.flags import naming_flags
from .options.layer_config import image_layer_config
from .options.mega_image import MegaImageConfig, complete_image_model


@register_model("mega_image", dataclass=MegaImageConfig)
class MegaImageModel(ImageClassifier):
    """Image classifier: ``--arch mega_image`` and its presets, ``preset_names("mega_image")``.

    Patches with a vector for each place, bidirectional pre-norm layers with Laplace attention over all of them, whose
    EMA leaves the present out of its future part, and a head with a layer before the mean.

    Args:
        cfg: a completed MegaImageConfig.

    Source: MEGA, section 4.4; shapes and head as in the published code (XuezheMax/mega-image).
    """

    @naming_flags("encoder", "image_size")
    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(int(cfg.image_size), int(cfg.image_class_num))
        width = int(cfg.encoder_embed_dim)
        embedding = PatchEmbedding(width, cfg.image_size, cfg.patch_size)
        layers = [MegaLayer(image_layer_config(cfg, layer)) for layer in range(cfg.encoder_layers)]
        final_norm = build_norm(str(cfg.normalization_type), width)
        self.encoder = SequenceEncoder(embedding, layers, final_norm, None, -1, cfg.checkpoint_activations)
        self.head = ImageHead(width, cfg.image_class_num)
        self.mark_undecayed()

    @classmethod
    def build_model(cls, cfg: Union[DictConfig, Namespace], task: Optional[Any] = None) -> "MegaImageModel":
        """Build a model; nothing of the task matters.

        Raises:
            ValueError: where options are out of range or contradict each other.
        """
        return cls(complete_image_model(cfg))

    @naming_flags("encoder", "image_size")
    def forward(self, images: Tensor) -> Tensor:
        """Logits of the classes.

        Args:
            images: (B, 3, S, S), normalised, S = ``--image-size``.

        Returns:
            (B, classes).

        Raises:
            ValueError: for input of another shape.
        """
        return self.head(self.encoder(images)[0])

    def is_decayed(self, name: str, parameter: Tensor) -> bool:
        """All but biases, weights of norms and the vectors of places.

        The moving averages and the relative bias, also one of their vectors, are decayed.

        Source: the published training (XuezheMax/mega-image), whose rule goes by its own names.
        """
        place = name == "encoder.embedding.positions"
        of_norm = name.endswith(".weight") and parameter.dim() == 1 and not name.endswith(".relative_bias.weight")
        return not (place or of_norm or name.endswith(".bias"))
