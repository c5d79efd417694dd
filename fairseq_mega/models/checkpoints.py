"""Load checkpoints of earlier versions into the models of today."""

from typing import Any, Dict

from torch import Tensor

FINGERPRINTS = ("dictionary_fingerprint", "dictionary_fingerprints")
SCALE = "sample_scale"  # buffer of models of speech: number of divisions of the samples by 32768
# Ends of buffers that a checkpoint may lack: of fairseq's adaptive tables, without information; and the scale.
OPTIONAL = ("._float_tensor", ".version", SCALE)


class ReadsOlderCheckpoints:
    """Mixin for models of fairseq that fits the tensors of an earlier checkpoint to the model."""

    def upgrade_state_dict_named(self, state_dict: Dict[str, Tensor], name: str) -> None:
        """Remove fingerprints of dictionaries, which were tensors once, and add missing OPTIONAL buffers, in place."""
        model: Any = super()
        model.upgrade_state_dict_named(state_dict, name)
        for key in [key for key in state_dict if key.endswith(FINGERPRINTS)]:
            del state_dict[key]
        for key, tensor in self.state_dict().items():  # type: ignore[attr-defined]
            if key.endswith(OPTIONAL):
                state_dict.setdefault(key, tensor)
