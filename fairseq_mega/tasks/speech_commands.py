"""Raw speech: SC10 of Speech Commands."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

import numpy as np
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task

from fairseq_mega.compat.files.card import LABELS, SAMPLES, SCALE, Card
from fairseq_mega.compat.files.loading import load
from fairseq_mega.data.card import options_of, settings_of_data
from fairseq_mega.data.classified import ClassifiedDataset, NumberSequenceDataset
from fairseq_mega.data.clip_scale import FILE_NAME, ClipScale
from fairseq_mega.models.classifier import SCALES

from .classification import ClassificationConfig, ClassificationTask

FOLDER = Path("processed_data") / "raw"
SCALINGS = {name: number for number, name in enumerate(SCALES) if name is not None}  # divisions by 32768
ScalingChoice = ChoiceEnum(list(SCALINGS))


@dataclass
class SpeechCommandsConfig(ClassificationConfig):
    """Options of ``--task speech_commands``."""

    sc_dropped_rate: float = field(
        default=0.0, metadata={"help": "share of samples to drop; only 0, the published value, is supported"}
    )
    sc_scaling: Optional[ScalingChoice] = field(  # type: ignore[valid-type]
        default=None,
        metadata={"help": "reject data that fairseq-mega-prepare made with another --scaling (default: accept both)"},
    )


@register_task("speech_commands", dataclass=SpeechCommandsConfig)
class SpeechCommandsTask(ClassificationTask):
    """Classify clips of raw speech.

    The data folder holds ``processed_data/raw/{train,val,test}_X.pt``, floats (n, L, 1) or (n, L), and ``_y.pt``,
    integers (n,); the split "valid" is called "val" there. Batches are cut in the order of the clips. Models store the
    ``scaling`` of the samples of their training if the data card records it.

    Source: the published code's task of this name.
    """

    input_type = "image"

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        if cfg.sc_dropped_rate != 0:
            raise ValueError(f"--sc-dropped-rate {cfg.sc_dropped_rate}: only 0 (every sample is read) is supported")
        self.scaling = scaling_of(Path(cfg.data))
        if None not in (cfg.sc_scaling, self.scaling) and str(cfg.sc_scaling) != self.scaling:
            raise ValueError(f"--sc-scaling {cfg.sc_scaling}: the samples were divided by 32768 {self.scaling}")

    def data_card(self) -> Card:
        """Return the labels, and the length and scale of the clips, if the data record them."""
        folder = Path(self.cfg.data)
        if not (folder / FOLDER / FILE_NAME).is_file():
            return {}
        clips = ClipScale.load(folder / FOLDER)
        own = {LABELS: "\n".join(clips.labels), SAMPLES: str(clips.length), SCALE: clips.described()}
        return {**settings_of_data(folder), **own}

    def read_split(self, split: str, training: bool) -> NumberSequenceDataset:
        """Read a split; see the base class."""
        name = "val" if split == "valid" else split
        paths = [Path(self.cfg.data) / FOLDER / f"{name}_{part}.pt" for part in "Xy"]
        samples, labels = (load(path, "cpu", mmap=True) for path in paths)
        if samples.dim() == 3 and samples.size(2) == 1:
            samples = samples.squeeze(2)
        if samples.dim() != 2 or not samples.is_floating_point():
            raise ValueError(f"{paths[0]} holds {samples.dtype} {tuple(samples.shape)}: float (n, L, 1) is required")
        return NumberSequenceDataset(samples.numpy(), labels.numpy())

    def order_of(self, dataset: ClassifiedDataset, training: bool) -> np.ndarray:
        """Return the order of the data, as published."""
        return np.arange(len(dataset))


def scaling_of(folder: Path) -> Optional[str]:
    """Return the scaling of a data folder's samples, a key of SCALINGS; None if it is unknown."""
    scaling = options_of(folder).get("scaling")
    return scaling if scaling in SCALINGS else None
