"""MEGA classifiers of images (MEGA, Ma et al., ICLR 2023, 4.4 and Table 11)."""

from argparse import Namespace
from typing import Any, Dict, Optional, Union

from fairseq.models import BaseFairseqModel, register_model
from omegaconf import DictConfig
from torch import Tensor

from fairseq_mega.compat.undecayed import leave_undecayed
from fairseq_mega.modules.images import ImageHead, PatchEmbedding
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.norm import build_norm
from fairseq_mega.modules.sequence_encoder import SequenceEncoder

from .checkpoints import check_state_dict
from .options.flags import naming_flags
from .options.layer_config import image_layer_config
from .options.mega_image import MegaImageConfig, complete_image_model


@register_model("mega_image", dataclass=MegaImageConfig)
class MegaImageModel(BaseFairseqModel):
    """Image classifier: ``--arch mega_image`` and its presets, ``preset_names("mega_image")``.

    Patches with a vector for each place, bidirectional pre-norm layers with Laplace attention over all of them, whose
    EMA leaves the present out of its future part, and a head with a layer before the mean.

    Args:
        cfg: a completed MegaImageConfig.

    Source: MEGA, section 4.4; shapes and head as in the published code (XuezheMax/mega-image).
    """

    @naming_flags("encoder", "image_size")
    def __init__(self, cfg: DictConfig) -> None:
        super().__init__()
        width = int(cfg.encoder_embed_dim)
        embedding = PatchEmbedding(width, cfg.image_size, cfg.patch_size)
        layers = [MegaLayer(image_layer_config(cfg, layer)) for layer in range(cfg.encoder_layers)]
        final_norm = build_norm(str(cfg.normalization_type), width)
        self.encoder = SequenceEncoder(embedding, layers, final_norm, None, -1, cfg.checkpoint_activations)
        self.head = ImageHead(width, cfg.image_class_num)
        self.image_size = int(cfg.image_size)
        self.classes = int(cfg.image_class_num)
        for name, parameter in self.named_parameters():
            if not is_decayed(name, parameter):
                leave_undecayed(parameter)

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

    def upgrade_state_dict_named(self, state_dict: Dict[str, Tensor], name: str) -> None:
        """Refuse checkpoints that do not fit, with a message that says why.

        Raises:
            ValueError: if the tensors are not this model's.
        """
        super().upgrade_state_dict_named(state_dict, name)
        check_state_dict(self, state_dict)


def is_decayed(name: str, parameter: Tensor) -> bool:
    """Whether ``--optimizer adam_selective_decay`` decays a parameter of this model.

    Biases, weights of norms and the vectors of places are not decayed; the moving averages and the relative bias, also
    one of their vectors, are.

    Source: the published training (XuezheMax/mega-image), whose rule goes by its own names.
    """
    place = name == "encoder.embedding.positions"
    of_norm = name.endswith(".weight") and parameter.dim() == 1 and not name.endswith(".relative_bias.weight")
    return not (place or of_norm or name.endswith(".bias"))
