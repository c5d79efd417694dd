"""Text tasks of the Long Range Arena: ListOps, Text and Retrieval."""

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.data import Dictionary, data_utils
from fairseq.tasks import register_task

from fairseq_mega.compat.files.card import LABELS, SOURCE, Card
from fairseq_mega.data.card import card_of_subwords, digest_of_dictionary, refuse_other_dictionaries, settings_of_data
from fairseq_mega.data.classified import ClassifiedDataset, ClassifiedTextDataset, read_classes
from fairseq_mega.data.text_units import MODEL_FILE, own_tokens

from .classification import ClassificationConfig, ClassificationTask

logger = logging.getLogger(__name__)

CLS = "<CLS>"
FIRST, SECOND, LABEL_FOLDER = "src-bin", "src1-bin", "label-bin"


@dataclass
class LRATextConfig(ClassificationConfig):
    """Options of ``--task lra-text``."""


@register_task("lra-text", dataclass=LRATextConfig)
class LRATextTask(ClassificationTask):
    """Classify texts, or pairs of texts if the data hold second documents.

    The data folder holds ``src-bin``, ``label-bin`` and in retrieval ``src1-bin``, each with ``dict.txt`` and the
    splits as ``fairseq-preprocess --only-source`` writes them. A class is the rank of its label in
    ``label-bin/dict.txt``, so the most frequent label is class 0. Texts are cut to ``--max-positions`` tokens.

    Source: the published code's task of this name, with its order of training examples.
    """

    input_type = "text"

    def __init__(self, cfg: Any, dictionary: Dictionary, label_dictionary: Dictionary) -> None:
        super().__init__(cfg)
        self.dictionary, self.label_dictionary = dictionary, label_dictionary
        self.cls_index = dictionary.add_symbol(CLS)  # always: checkpoints have this row
        self.documents = 2 if os.path.isdir(os.path.join(cfg.data, SECOND)) else 1

    @classmethod
    def setup_task(cls, cfg: Any, **kwargs: Any) -> "LRATextTask":
        """Load the dictionaries.

        Raises:
            FileNotFoundError: if a dictionary does not exist.
            ValueError: if the dictionary of the second documents differs.
        """
        files = [Path(cfg.data, folder, "dict.txt") for folder in (FIRST, SECOND, LABEL_FOLDER)]
        dictionary, labels = (Dictionary.load(str(file)) for file in files[::2])
        refuse_other_dictionaries(SOURCE, *files[:2])
        logger.info(f"{len(dictionary)} tokens, {len(own_tokens(labels))} labels")
        return cls(cfg, dictionary, labels)

    @property
    def text_folder(self) -> str:
        """Folder of the (first) documents, with the model of their subwords if any."""
        return os.path.join(self.cfg.data, FIRST)

    def data_card(self) -> Card:
        """Return the card of the data: both dictionaries, the subword model if any, and the recorded settings."""
        data = Path(self.cfg.data)
        folders = [data / folder for folder in (FIRST, SECOND)]
        return {
            **settings_of_data(folders[0]),
            **settings_of_data(data),
            SOURCE: digest_of_dictionary(self.dictionary),
            LABELS: "\n".join(self.label_dictionary.symbols),
            **card_of_subwords(*(folder / MODEL_FILE for folder in folders)),
        }

    def read_split(self, split: str, training: bool) -> ClassifiedTextDataset:
        """Read a split; see the base class."""
        return ClassifiedTextDataset(
            [self._lines(folder, split, self.dictionary) for folder in (FIRST, SECOND)[: self.documents]],
            read_classes(self._lines(LABEL_FOLDER, split, self.label_dictionary), self.label_dictionary, split),
            self.dictionary.pad(),
            self.longest,
            self.cls_index if self.pooling == "cls" else None,
        )

    def order_of(self, dataset: ClassifiedDataset, training: bool) -> np.ndarray:
        """Return a seeded order for training; scored texts are in the order of their lengths, for the least padding."""
        return super().order_of(dataset, True) if training else np.argsort(-dataset.sizes, kind="stable")

    def _lines(self, folder: str, split: str, dictionary: Dictionary) -> Any:
        """Load the indexed dataset of a binarised file."""
        path = os.path.join(self.cfg.data, folder, split)
        lines = data_utils.load_indexed_dataset(path, dictionary)
        if lines is None:
            raise FileNotFoundError(f"Dataset not found: {split} ({path})")
        return lines
