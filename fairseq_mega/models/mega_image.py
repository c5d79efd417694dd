"""MEGA classifiers of images (MEGA, Ma et al., ICLR 2023, 4.4 and Table 11)."""

from argparse import Namespace
from typing import Any, Optional, Union

from fairseq.models import register_model
from omegaconf import DictConfig

from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.norm import build_norm

from .image_classifier import PatchClassifier
from .options.images import complete_images
from .options.layer_config import image_layer_config
from .options.mega_image import MegaImageConfig


@register_model("mega_image", dataclass=MegaImageConfig)
class MegaImageModel(PatchClassifier):
    """Image classifier: ``--arch mega_image`` and its presets, ``preset_names("mega_image")``.

    Its layers have Laplace attention over all patches, and an EMA that leaves the present out of its future part.

    Args:
        cfg: a completed MegaImageConfig.

    Source: MEGA, section 4.4; shapes and head as in the published code (XuezheMax/mega-image).
    """

    def __init__(self, cfg: DictConfig) -> None:
        layers = (MegaLayer(image_layer_config(cfg, layer)) for layer in range(cfg.encoder_layers))
        super().__init__(cfg, layers, build_norm(str(cfg.normalization_type), int(cfg.encoder_embed_dim)))

    @classmethod
    def build_model(cls, cfg: Union[DictConfig, Namespace], task: Optional[Any] = None) -> "MegaImageModel":
        """Build a model; nothing of the task matters.

        Raises:
            ValueError: where options are out of range or contradict each other.
        """
        return cls(complete_images(MegaImageConfig, cfg))
