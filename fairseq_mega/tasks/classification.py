"""The common part of the classification tasks: they use the model's form of input and leave no example out."""

import json
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as np
from fairseq.dataclass import FairseqDataclass
from fairseq.tasks import FairseqTask
from omegaconf import II, MISSING

from fairseq_mega.compat.checkpoints.names import LABELS, Names
from fairseq_mega.data.classified import ClassifiedDataset, shuffled
from fairseq_mega.data.file_kinds import SOURCE
from fairseq_mega.models.classifier import SequenceClassifier


@dataclass
class ClassificationConfig(FairseqDataclass):
    """Options of every classification task."""

    data: str = field(default=MISSING, metadata={"help": "data folder"})
    no_shuffle: bool = field(default=False, metadata={"help": "do not shuffle: form batches in the order of the data"})
    seed: int = II("common.seed")
    max_valid_steps: Optional[int] = II("dataset.max_valid_steps")


class ClassificationTask(FairseqTask):
    """A class per sequence.

    Subclasses set ``input_type`` ("text" or "image"), for text the dictionaries, and define :meth:`load_dataset`.
    """

    input_type = ""
    training_options: Tuple[str, ...] = ("no_shuffle",)  # which no other command reads
    criterions = ("lra_cross_entropy",)  # all others divide by tokens, and count no labels
    documents = 1  # 2 in retrieval
    dictionary: Any = None
    label_dictionary: Any = None

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        self.longest: Optional[int] = None  # this and the next two are the model's
        self.classes: Optional[int] = None
        self.pooling = "mp"
        self.expected: Optional[int] = None  # examples of the data that are scored next
        self.in_training = False
        self.trained_names: Dict[str, str] = {}  # those of the checkpoint, see compat.names

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> "ClassificationTask":
        """The task; nothing else in ``kwargs`` (such as ``from_checkpoint``) matters."""
        return cls(cfg)

    @property
    def source_dictionary(self) -> Any:
        return self.dictionary

    @property
    def target_dictionary(self) -> Any:
        return None

    def names_of_numbers(self) -> Dict[str, Names]:
        """Names of the numbers; none where classes are numbers in the data, too."""
        return {}

    def max_positions(self) -> Optional[int]:
        """None: what is too long is cut or refused when the data are loaded, never skipped."""
        return None

    def build_model(self, cfg: Any, from_checkpoint: bool = False) -> Any:
        """Build the model and learn what it reads, see :meth:`learn_from`."""
        model = super().build_model(cfg, from_checkpoint)
        self.learn_from(model)
        return model

    def learn_from(self, model: Any) -> None:
        """Record the form of input of the model.

        Raises:
            ValueError: if it is no classifier of sequences.
        """
        if not isinstance(model, SequenceClassifier):
            raise ValueError(
                f"--task {self.cfg.get('_name')} needs a classifier, {type(model).__name__} is none: give --arch "
                f"mega_lra, transformer_lra, s4d_lra or one of their presets"
            )
        self.longest, self.classes, self.pooling = model.longest, model.classes, model.pooling

    def training_order(self, count: int) -> Optional[np.ndarray]:
        """Order from which batches are cut; None: as the data are."""
        return None if self.cfg.no_shuffle else shuffled(count, self.cfg.seed)

    def get_batch_iterator(self, dataset: ClassifiedDataset, *args: Any, **kwargs: Any) -> Any:
        """Return fairseq's iterator, with every example in exactly one batch whatever the options are.

        Raises:
            ValueError: if --max-tokens is less than an example has.
            RuntimeError: if the batches do not hold each example once.
        """
        assert not args, "this task takes keyword arguments only"
        longest = int(dataset.sizes.max())
        if kwargs.get("max_tokens") is not None and kwargs["max_tokens"] < longest:
            raise ValueError(
                f"--max-tokens {kwargs['max_tokens']}: an example has {longest} tokens; give at least that, or "
                f"--batch-size alone"
            )
        kwargs.update(max_positions=None, required_batch_size_multiple=1)
        iterator = super().get_batch_iterator(dataset, **kwargs)
        members = np.sort(np.fromiter(chain.from_iterable(iterator.frozen_batches), dtype=np.int64))
        if not np.array_equal(members, np.arange(len(dataset))):
            raise RuntimeError(f"the batches hold {len(members)} of {len(dataset)} examples, or some of them twice")
        self.expected = len(dataset)
        return iterator

    def begin_epoch(self, epoch: int, model: Any) -> None:
        super().begin_epoch(epoch, model)
        self.in_training = True

    def begin_valid_epoch(self, epoch: int, model: Any) -> None:
        super().begin_valid_epoch(epoch, model)
        self.in_training = True

    def reduce_metrics(self, logging_outputs: List[Dict[str, Any]], criterion: Any) -> None:
        """Reduce metrics as fairseq does; fairseq-validate, which passes all batches at once, must score all examples.

        Raises:
            RuntimeError: if examples were not scored.
        """
        super().reduce_metrics(logging_outputs, criterion)
        if not self.in_training:
            self.check_scored(sum(int(output.get("nsentences", 0)) for output in logging_outputs))

    def post_validate(self, model: Any, stats: Any, agg: Any) -> None:
        """Called by fairseq-train after each validation: every example must have been scored.

        Raises:
            RuntimeError: if it has not.
        """
        if self.cfg.max_valid_steps is None and "_examples" in agg:
            self.check_scored(int(agg["_examples"].sum))

    def check_scored(self, examples: int) -> None:
        """Raise a RuntimeError unless as many examples were scored as the data have."""
        if self.expected is not None and examples != self.expected:
            raise RuntimeError(
                f"{examples} of {self.expected} examples were scored: the accuracy is not that of the whole data"
            )


def names_of_labels(labels: Sequence[str], where: Path, remedy: str = "") -> Dict[str, Names]:
    """Names of the classes 0, 1, ... as checkpoints remember them."""
    return {LABELS: Names("\n".join(labels), str(where), f"give the data folder it was trained on{remedy}")}


def setting_of(folder: Path, name: str) -> Any:
    """Value of an option that fairseq-mega-prepare made a data folder with; None where that is not known.

    Raises:
        ValueError: if its SOURCE.json is broken.
    """
    path = folder / SOURCE
    if not path.is_file():
        return None
    try:
        return json.loads(path.read_text(encoding="utf-8"))["settings"].get(name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} was not written by fairseq-mega-prepare: make the data anew, or remove it") from error
