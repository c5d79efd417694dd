"""Base of all classifiers of colour images."""

from argparse import Namespace
from typing import Any, Dict, Iterable, Optional, Type, Union

from fairseq.dataclass import FairseqDataclass
from fairseq.models import BaseFairseqModel
from omegaconf import DictConfig
from torch import Tensor, nn

from fairseq_mega.compat.features.no_weight_decay import exclude_from_weight_decay
from fairseq_mega.modules.errors import check_probability
from fairseq_mega.modules.images import ImageHead, PatchEmbedding
from fairseq_mega.modules.sequence_encoder import SequenceEncoder

from .checkpoints import ReadsOlderCheckpoints
from .options.configurations import check_at_least, complete, naming_flags

BOUNDS = {"encoder_layers": 1, "image_size": 1, "patch_size": 1, "image_class_num": 2}


@naming_flags("encoder", "image_size")
def stochastic_depth(cfg: DictConfig, layer: int) -> float:
    """Return the probability that an image skips a layer, from 0 in layer 0 to --drop-path in the last layer.

    Raises:
        ValueError: if --drop-path is not a probability.
    """
    check_probability("stochastic_depth", cfg.drop_path)
    return float(cfg.drop_path * layer / max(cfg.encoder_layers - 1, 1))


class ImageClassifier(ReadsOlderCheckpoints, BaseFairseqModel):
    """Map from images (B, 3, S, S) to logits (B, classes): a model of ``--task image-classification``.

    Attributes:
        options, bounds: dataclass of the model's options, and minimum values of options.
        image_size: S.
        classes: number of classes.
    """

    options: Type[FairseqDataclass]
    bounds: Dict[str, int] = BOUNDS

    def __init__(self, cfg: DictConfig) -> None:
        super().__init__()
        self.image_size, self.classes = int(cfg.image_size), int(cfg.image_class_num)

    @classmethod
    def build_model(cls, cfg: Union[DictConfig, Namespace], task: Optional[Any] = None) -> "ImageClassifier":
        """Build a model; ``task`` is ignored.

        Raises:
            ValueError: where options are out of range or contradict each other.
        """
        completed = complete(cls.options, cfg)
        check_at_least(completed, cls.bounds)
        return cls(completed)

    def mark_no_weight_decay(self) -> None:
        """Mark the parameters that :meth:`is_decayed` excludes; call this after all parameters exist."""
        for name, parameter in self.named_parameters():
            if not self.is_decayed(name, parameter):
                exclude_from_weight_decay(parameter)

    def is_decayed(self, name: str, parameter: Tensor) -> bool:
        """Return whether ``--optimizer adam_selective_decay`` decays a parameter."""
        raise NotImplementedError


class PatchClassifier(ImageClassifier):
    """Classifier of patches with position vectors, bidirectional layers, and a head with a layer before the mean.

    Args:
        cfg: a completed configuration with the options IMAGES, a width and --checkpoint-activations.
        layers: pre-norm layers; the iterable is read after the embedding is built.
        final_norm: norm after the layers.

    Source: MEGA (Ma et al., ICLR 2023), section 4.4; shapes and head as in the published code (XuezheMax/mega-image).
    """

    @naming_flags("encoder", "image_size")
    def __init__(self, cfg: DictConfig, layers: Iterable[nn.Module], final_norm: nn.Module) -> None:
        super().__init__(cfg)
        width = int(cfg.encoder_embed_dim)
        embedding = PatchEmbedding(width, cfg.image_size, cfg.patch_size)
        self.encoder = SequenceEncoder(embedding, layers, final_norm, None, -1, cfg.checkpoint_activations)
        self.head = ImageHead(width, cfg.image_class_num)
        self.mark_no_weight_decay()

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
        """Return False for biases, weights of norms and position vectors, else True.

        Parameters of the moving averages and of the relative bias are decayed, also if they are vectors.

        Source: the published training (XuezheMax/mega-image), translated to our names.
        """
        place = name == "encoder.embedding.positions"
        of_norm = name.endswith(".weight") and parameter.dim() == 1 and not name.endswith(".relative_bias.weight")
        return not (place or of_norm or name.endswith(".bias"))
