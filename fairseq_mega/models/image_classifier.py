"""What all classifiers of colour images have in common, whichever layers they have."""

from typing import Dict

from fairseq.models import BaseFairseqModel
from torch import Tensor

from fairseq_mega.compat.undecayed import leave_undecayed

from .checkpoints import check_state_dict


class ImageClassifier(BaseFairseqModel):
    """From images (B, 3, S, S) to logits (B, classes): a model of ``--task image-classification``.

    Attributes:
        image_size: S.
        classes: how many there are.
    """

    def __init__(self, image_size: int, classes: int) -> None:
        super().__init__()
        self.image_size, self.classes = image_size, classes

    def mark_undecayed(self) -> None:
        """Mark what :meth:`is_decayed` leaves out, once all parameters are there."""
        for name, parameter in self.named_parameters():
            if not self.is_decayed(name, parameter):
                leave_undecayed(parameter)

    def is_decayed(self, name: str, parameter: Tensor) -> bool:
        """Whether ``--optimizer adam_selective_decay`` decays a parameter."""
        raise NotImplementedError

    def upgrade_state_dict_named(self, state_dict: Dict[str, Tensor], name: str) -> None:
        """Refuse checkpoints that do not fit, with a message that says why.

        Raises:
            ValueError: if the tensors are not this model's.
        """
        super().upgrade_state_dict_named(state_dict, name)
        check_state_dict(self, state_dict)
