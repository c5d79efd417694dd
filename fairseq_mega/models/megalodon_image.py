"""MEGALODON classifiers of images: our interpretation of an unpublished architecture.

MEGALODON (Ma et al., NeurIPS 2024, section 4.5 and Appendix C) names softmax, rotary positions, pre-norm with two-hop
residual, group norm, 90M parameters and most of MEGA's hyper-parameters; no code was published. Rotary positions
replace MEGA's relative bias. Position vectors, patches, widths and head are MEGA's: rotary positions encode only the
distance between two patches in the sequence, not their row and column. The FFN is wider, 2.5 d, in place of the missing
update gate, as in the published code's model of 200M parameters. The function after the EMA and the range of the EMA's
backward direction are those of ``megalodon_classifier``.
"""

from fairseq.models import register_model
from omegaconf import DictConfig

from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from fairseq_mega.modules.megalodon.norms import GroupNorm

from .image_classifier import PatchClassifier, stochastic_depth
from .options.configurations import megalodon_layer_config
from .options.option import of_side, with_options
from .options.table import IMAGES, MEGALODON_KIND, MEGALODON_WIDTHS


@with_options(
    *of_side("encoder", MEGALODON_WIDTHS),
    *MEGALODON_KIND,
    *IMAGES,
    encoder_embed_dim={"default": 768},
    encoder_layers={"default": 12},
    encoder_hidden_dim={"default": 1536},
    encoder_ffn_embed_dim={"default": 1920},
    encoder_z_dim={"default": 256},
    dropout={"help": "dropout of each sub-layer's output"},
)
class MegalodonImageConfig:
    """Command-line options of ``--arch megalodon_image``; the defaults are our interpretation of the paper's model for
    ImageNet (MEGALODON, Table 4).
    """


@register_model("megalodon_image", dataclass=MegalodonImageConfig)
class MegalodonImageModel(PatchClassifier):
    """Image classifier: ``--arch megalodon_image`` and its presets, ``preset_names("megalodon_image")``.

    Args:
        cfg: a completed MegalodonImageConfig.
    """

    options = MegalodonImageConfig

    def __init__(self, cfg: DictConfig) -> None:
        configs = [
            megalodon_layer_config(cfg, "encoder", "image_size", stochastic_depth=stochastic_depth(cfg, layer))
            for layer in range(cfg.encoder_layers)
        ]
        layers = (MegalodonLayer(config, index) for index, config in enumerate(configs))
        super().__init__(cfg, layers, GroupNorm(configs[0].embed_dim, configs[0].norm_groups))
