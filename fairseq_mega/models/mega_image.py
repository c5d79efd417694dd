"""MEGA classifiers of images (MEGA, Ma et al., ICLR 2023, 4.4 and Table 11)."""

from fairseq.models import register_model
from omegaconf import DictConfig

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.images import patch_count
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.norm import build_norm

from .image_classifier import PatchClassifier, stochastic_depth
from .options.configurations import layer_config, naming_flags
from .options.option import of_side, with_options
from .options.table import DROPOUT, IMAGES, MEGA_WIDTHS, NORM, RECOMPUTATION


@with_options(
    *of_side("encoder", MEGA_WIDTHS),
    NORM._replace(alias="--norm-type"),
    DROPOUT._replace(default=0.0, help="dropout of EMA output, candidate and FFN output"),
    RECOMPUTATION,
    *IMAGES,
    encoder_embed_dim={"default": 768},
    encoder_layers={"default": 12},
    encoder_hidden_dim={"default": 1536},
    encoder_z_dim={"default": 256},
)
class MegaImageConfig:
    """Command-line options of ``--arch mega_image``; the defaults are the paper's model for ImageNet (Table 11)."""


@naming_flags("encoder", "image_size")
def image_layer_config(cfg: DictConfig, layer: int) -> MegaLayerConfig:
    """Return the checked shape of the layer of a completed MegaImageConfig with this index.

    Raises:
        ValueError: where an option is out of range.
    """
    return layer_config(
        cfg,
        "encoder",
        "image_size",
        max_positions=patch_count(cfg.image_size, cfg.patch_size),
        shift=True,
        attention_function="laplace",
        normalize_before=True,
        stochastic_depth=stochastic_depth(cfg, layer),
    )


@register_model("mega_image", dataclass=MegaImageConfig)
class MegaImageModel(PatchClassifier):
    """Image classifier: ``--arch mega_image`` and its presets, ``preset_names("mega_image")``.

    Its layers have Laplace attention over all patches, and an EMA whose backward direction excludes the present.

    Args:
        cfg: a completed MegaImageConfig.

    Source: MEGA, section 4.4; shapes and head as in the published code (XuezheMax/mega-image).
    """

    options = MegaImageConfig

    def __init__(self, cfg: DictConfig) -> None:
        layers = (MegaLayer(image_layer_config(cfg, layer)) for layer in range(cfg.encoder_layers))
        super().__init__(cfg, layers, build_norm(str(cfg.normalization_type), int(cfg.encoder_embed_dim)))
