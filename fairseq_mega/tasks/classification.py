"""Base of the classification tasks, which use the model's form of input and score every example."""

import logging
from dataclasses import dataclass, field
from typing import Any, Optional

import numpy as np
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask
from omegaconf import II, MISSING

from fairseq_mega.compat.files.card import Card
from fairseq_mega.compat.processes.batches import is_for_training
from fairseq_mega.data.classified import ClassifiedDataset, shuffled

logger = logging.getLogger(__name__)


@dataclass
class ClassificationConfig(FairseqDataclass):
    """Options of every classification task."""

    data: str = field(default=MISSING, metadata={"help": "data folder"})
    no_shuffle: bool = field(default=False, metadata={"help": "do not shuffle: form batches in the order of the data"})
    seed: int = II("common.seed")


class ClassificationTask(FairseqTask):
    """Task of predicting one class for each sequence.

    Subclasses set ``input_type`` ("text" or "image") and, for text, the dictionaries; they define :meth:`read_split`.
    """

    input_type = ""
    criterions = ("lra_cross_entropy",)  # other criterions divide by tokens and do not count labels
    documents = 1  # 2 in retrieval
    dictionary: Any = None
    label_dictionary: Any = None

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        self.longest: Optional[int] = None  # longest, classes and pooling are set from the model
        self.classes: Optional[int] = None
        self.pooling = "mp"
        self.trained_card: Card = {}  # of the checkpoint, see compat.files.card

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> "ClassificationTask":
        """Build the task; ``kwargs`` (such as ``from_checkpoint``) are ignored."""
        return cls(cfg)

    @property
    def source_dictionary(self) -> Any:
        return self.dictionary

    @property
    def target_dictionary(self) -> Any:
        return None

    def data_card(self) -> Card:
        """Return the card of the data; empty if classes are numbers in the data, too."""
        return {}

    def max_positions(self) -> Optional[int]:
        """Return None: texts are cut to the model's length, so fairseq must not skip any example."""
        return None

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model and record its form of input, see :meth:`learn_from`."""
        model = super().build_model(cfg, from_checkpoint)
        self.learn_from(model)
        return model

    def learn_from(self, model: Any) -> None:
        """Record the form of input of the model."""
        self.longest, self.classes, self.pooling = model.longest, model.classes, model.pooling

    def read_split(self, split: str, training: bool) -> ClassifiedDataset:
        """Read a split; its examples stay in their files until they are used.

        Args:
            split: name of the split.
            training: whether a training reads the split to train on it.

        Raises:
            OSError, ValueError: if a file is missing or broken, or files do not belong together.
        """
        raise NotImplementedError

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> ClassifiedDataset:
        """Load a split.

        Raises:
            OSError, ValueError: as :meth:`read_split`.
        """
        training = is_for_training(kwargs)
        dataset = self.read_split(split, training)
        logger.info(f"{split}: {len(dataset):,} examples of up to {dataset.sizes.max(initial=0):,} tokens or numbers")
        if not self.cfg.no_shuffle:
            dataset.order = self.order_of(dataset, training)
        self.datasets[split] = dataset
        return dataset

    def order_of(self, dataset: ClassifiedDataset, training: bool) -> np.ndarray:
        """Return the order (n,) from which batches are cut, unless --no-shuffle is given."""
        return shuffled(len(dataset), self.cfg.seed)

    def get_batch_iterator(self, dataset: ClassifiedDataset, *args: Any, **kwargs: Any) -> Any:
        """Return fairseq's iterator, with every example in exactly one batch."""
        kwargs.update(max_positions=None, required_batch_size_multiple=1)
        return super().get_batch_iterator(dataset, *args, **kwargs)
