"""Base of the classification tasks, which use the model's form of input and score every example."""

import logging
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Dict, List, Optional

import numpy as np
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask
from omegaconf import II, MISSING

from fairseq_mega.compat.files.card import Card
from fairseq_mega.data.class_folders import listed
from fairseq_mega.data.classified import ClassifiedDataset, shuffled

logger = logging.getLogger(__name__)


@dataclass
class ClassificationConfig(FairseqDataclass):
    """Options of every classification task."""

    data: str = field(default=MISSING, metadata={"help": "data folder"})
    no_shuffle: bool = field(default=False, metadata={"help": "do not shuffle: form batches in the order of the data"})
    seed: int = II("common.seed")
    max_valid_steps: Optional[int] = II("dataset.max_valid_steps")


class ClassificationTask(FairseqTask):
    """Task of predicting one class for each sequence.

    Subclasses set ``input_type`` ("text" or "image") and, for text, the dictionaries; they define :meth:`load_dataset`.
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
        self.expected: Optional[int] = None  # number of examples that must be scored next
        self.in_training = False
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
        """Return None: :meth:`load_dataset` cuts or refuses long examples, so fairseq must not skip any."""
        return None

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model and record its form of input, see :meth:`learn_from`."""
        model = super().build_model(cfg, from_checkpoint)
        self.learn_from(model)
        return model

    def learn_from(self, model: Any) -> None:
        """Record the form of input of the model."""
        self.longest, self.classes, self.pooling = model.longest, model.classes, model.pooling

    def training_order(self, count: int) -> Optional[np.ndarray]:
        """Return the order from which batches are cut; None for the order of the data."""
        return None if self.cfg.no_shuffle else shuffled(count, self.cfg.seed)

    def get_batch_iterator(self, dataset: ClassifiedDataset, *args: Any, **kwargs: Any) -> Any:
        """Return fairseq's iterator, with every example in exactly one batch.

        Raises:
            ValueError: if an example has more than --max-tokens tokens.
            RuntimeError: if the batches do not hold each example once.
        """
        assert not args, "this task accepts keyword arguments only"
        longest = int(dataset.sizes.max())
        if kwargs.get("max_tokens") is not None and kwargs["max_tokens"] < longest:
            raise ValueError(
                f"--max-tokens {kwargs['max_tokens']}: an example has {longest} tokens: give --max-tokens {longest} or "
                f"more, or only --batch-size"
            )
        kwargs.update(max_positions=None, required_batch_size_multiple=1)
        iterator = super().get_batch_iterator(dataset, **kwargs)
        members = np.sort(np.fromiter(chain.from_iterable(iterator.frozen_batches), dtype=np.int64))
        if not np.array_equal(members, np.arange(len(dataset))):
            raise RuntimeError(f"the batches hold {len(members)} of {len(dataset)} examples, or some of them twice")
        self.expected = len(dataset)
        if dataset is self.datasets.get("train"):
            self.warn_of_classes_without_training()
        return iterator

    def warn_of_classes_without_training(self) -> None:
        """Warn of classes in the validation data, which are loaded first, that no training example has."""
        for split, dataset in self.datasets.items():
            unknown = np.setdiff1d(dataset.labels, self.datasets["train"].labels)
            if len(unknown):
                count = int(np.isin(dataset.labels, unknown).sum())
                logger.warning(
                    f"{count:,} of the {len(dataset):,} examples of {split} have a class that no example of train has: "
                    f"{listed([*map(str, unknown)])}; if the data were sorted by class, shuffle them before the split"
                )

    def begin_epoch(self, epoch: int, model: Any) -> None:
        super().begin_epoch(epoch, model)
        self.in_training = True

    def begin_valid_epoch(self, epoch: int, model: Any) -> None:
        super().begin_valid_epoch(epoch, model)
        self.in_training = True

    def reduce_metrics(self, logging_outputs: List[Dict[str, Any]], criterion: Any) -> None:
        """Reduce metrics as fairseq does.

        Raises:
            RuntimeError: if fairseq-validate, which passes all batches at once, did not score every example.
        """
        super().reduce_metrics(logging_outputs, criterion)
        if not self.in_training:
            self.check_scored(sum(int(output.get("nsentences", 0)) for output in logging_outputs))

    def post_validate(self, model: Any, stats: Any, agg: Any) -> None:
        """Check a validation of fairseq-train, which calls this method afterwards.

        Raises:
            RuntimeError: if an example was not scored.
        """
        if self.cfg.max_valid_steps is None and "_examples" in agg:
            self.check_scored(int(agg["_examples"].sum))

    def check_scored(self, examples: int) -> None:
        """Raise a RuntimeError unless every example of the data was scored."""
        if self.expected is not None and examples != self.expected:
            raise RuntimeError(
                f"{examples} of {self.expected} examples were scored, so the accuracy is not of the whole data"
            )
