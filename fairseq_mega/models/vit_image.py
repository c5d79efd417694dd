"""Vision Transformers, the baseline of MEGA on ImageNet (MEGA, Table 6, DeiT-B); the layers are timm's."""

from functools import partial

from fairseq.models import register_model
from omegaconf import DictConfig
from torch import Tensor, nn

from fairseq_mega.compat.versions.image_libraries import import_timm
from fairseq_mega.modules.drawn import adopt
from fairseq_mega.modules.images import check_images, check_patches

from .image_classifier import BOUNDS, ImageClassifier
from .options.configurations import naming_flags
from .options.option import of_side, with_options
from .options.table import DROPOUT, IMAGES, TRANSFORMER_WIDTHS


@with_options(
    *of_side("encoder", TRANSFORMER_WIDTHS),
    DROPOUT._replace(default=0.0, help="dropout of each sub-layer's output"),
    *IMAGES,
    encoder_embed_dim={"default": 768},
    encoder_layers={"default": 12},
    encoder_ffn_embed_dim={"default": 3072},
    encoder_attention_heads={"default": 12},
    drop_path={"default": 0.1},
)
class VitImageConfig:
    """Command-line options of ``--arch vit_image``; the defaults are DeiT-B (Touvron et al., ICML 2021)."""


@register_model("vit_image", dataclass=VitImageConfig)
class VitImageModel(ImageClassifier):
    """Image classifier: ``--arch vit_image``, and ``vit_image_deit_b``.

    Args:
        cfg: a completed VitImageConfig.

    Raises:
        ValueError: if timm is not installed, or patches do not cover the image.

    Source: ViT (Dosovitskiy et al., 2021); DeiT (Touvron et al., 2021), without distillation.
    """

    options = VitImageConfig
    bounds = {**BOUNDS, "encoder_ffn_embed_dim": 1, "encoder_attention_heads": 1}

    @naming_flags("encoder", "image_size")
    def __init__(self, cfg: DictConfig) -> None:
        super().__init__(cfg)
        width, heads, patch = int(cfg.encoder_embed_dim), int(cfg.encoder_attention_heads), int(cfg.patch_size)
        check_patches(self.image_size, patch)
        self.encoder = import_timm("timm.models.vision_transformer").VisionTransformer(
            img_size=self.image_size,
            patch_size=patch,
            num_classes=self.classes,
            embed_dim=width,
            depth=int(cfg.encoder_layers),
            num_heads=heads,
            mlp_ratio=cfg.encoder_ffn_embed_dim / width,
            proj_drop_rate=float(cfg.dropout),
            drop_path_rate=float(cfg.drop_path),
        )
        for part in self.encoder.modules():
            if type(part) is nn.Linear:
                adopt(part, partial(nn.init.trunc_normal_, std=0.02))  # as timm draws them
        self.mark_no_weight_decay()

    def reset_parameters(self) -> None:
        """Draw position vectors and class token as timm does, whose encoder has no method for them alone."""
        nn.init.trunc_normal_(self.encoder.pos_embed, std=0.02)
        nn.init.normal_(self.encoder.cls_token, std=1e-6)

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
        check_images(images, self.image_size)
        return self.encoder(images)

    def is_decayed(self, name: str, parameter: Tensor) -> bool:
        """Return False for vectors and for the parameters that timm excludes: class token and position vectors."""
        return parameter.dim() > 1 and name.rpartition(".")[2] not in self.encoder.no_weight_decay()
