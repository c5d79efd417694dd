"""Pre-training on JSON lines with a sentencepiece model: texts are encoded while they are read from disk."""

import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Tuple

from fairseq import utils
from fairseq.data import Dictionary, FairseqDataset, iterators
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import register_task

from fairseq_mega.compat.files.card import SOURCE, Card, digest
from fairseq_mega.data.binarised_text import BinarisedText
from fairseq_mega.data.card import card_of_subwords
from fairseq_mega.data.document_stream import BlockIterator, DocumentStream, ReadDocuments, StreamBlockDataset
from fairseq_mega.data.json_lines import BAD_LINES, Source, json_files
from fairseq_mega.data.text_units import MODEL_FILE, DocumentUnit, SubwordVocabulary, unspelled

from .mega_language_modeling import MegaLanguageModelingConfig, MegaLanguageModelingTask

logger = logging.getLogger(__name__)


@dataclass
class MegalodonPretrainConfig(MegaLanguageModelingConfig):
    """Options of ``--task megalodon_pretrain``, beside those of mega_language_modeling."""

    data: Optional[str] = field(
        default=None,
        metadata={
            "help": "folder with the sentencepiece model and SPLIT.jsonl, or folders SPLIT/ with .jsonl files; several "
            "folders are separated by colons, and each epoch reads the next folder"
        },
    )
    variant_block_multiple_min: int = field(default=8, metadata={"help": "not used"})
    variant_block_multiple_max: int = field(default=8, metadata={"help": "chunks of every training sequence"})
    valid_block: str = field(
        default="splits:1",
        metadata={
            "help": "segments of validation and test text, each read with memory: splits:K, K segments of whole "
            "documents; size:N, segments of up to N tokens; size:1, one segment for each document"
        },
    )
    subword_model: Optional[str] = field(
        default=None, metadata={"help": f"sentencepiece model (default: {MODEL_FILE} in the data folder)"}
    )
    text_field: str = field(default="text", metadata={"help": "JSON field that holds the text"})
    bad_lines: ChoiceEnum(BAD_LINES) = field(  # type: ignore[valid-type]
        default="error", metadata={"help": "fail at a line without a text, or skip the line"}
    )
    index_dir: Optional[str] = field(
        default=None,
        metadata={"help": "folder to cache the token counts of the training text in (default: the folder of the text)"},
    )


@register_task("megalodon_pretrain", dataclass=MegalodonPretrainConfig)
class MegalodonPretrainTask(MegaLanguageModelingTask):
    """Train on consecutive sequences of a stream of documents, shuffled again in every epoch.

    A document becomes its subwords and ``</s>``, which is also the beginning of the next document. Training holds only
    some spans of 1 MiB of the text in memory; validation holds all tokens of its text.

    Source: MEGALODON (Ma et al., NeurIPS 2024), section 4.1, and the published code's input.
    """

    def __init__(self, args: Any, dictionary: Any, output_dictionary: Any = None, targets: Any = None) -> None:
        super().__init__(args, dictionary, output_dictionary, targets)
        self.vocabulary = SubwordVocabulary(model_file(args))
        self.state.merge_state_dict({"unit": DocumentUnit.name})

    @classmethod
    def setup_dictionary(cls, args: Any, **kwargs: Any) -> Tuple[Dictionary, Dictionary]:
        """Return fairseq's special tokens followed by the subwords of the sentencepiece model."""
        dictionary = SubwordVocabulary(model_file(args)).dictionary
        logger.info(f"dictionary: {len(dictionary)} types")
        return dictionary, dictionary

    def _text(self, split: str, epoch: int, combine: bool, training: bool) -> Any:
        folders = utils.split_paths(self.args.data)
        files = json_files(Path(folders[(epoch - 1) % len(folders)]), split)
        sources = [Source(file, self.args.text_field, str(self.args.bad_lines)) for file in files]
        documents: Any
        if training:
            folder = Path(self.args.index_dir) if self.args.index_dir else None
            documents = DocumentStream(sources, self.vocabulary, split, self.args.seed, folder)
        else:
            documents = ReadDocuments(sources, self.vocabulary)
        if documents.skipped:
            logger.warning(f"{split}: {documents.skipped:,} bad lines were skipped (--bad-lines skip)")
        return documents if training else BinarisedText(documents, split)

    def _blocks(self, text: Any) -> StreamBlockDataset:
        return StreamBlockDataset(text, self.dictionary, self.chunk_size * self.args.variant_block_multiple_max)

    def get_batch_iterator(self, dataset: FairseqDataset, *args: Any, **kwargs: Any) -> iterators.EpochBatchIterator:
        """Return the base class's iterator; training batches are built while they are read, and none is filtered."""
        if not isinstance(dataset, StreamBlockDataset):
            return super().get_batch_iterator(dataset, *args, **kwargs)
        assert not args, "sequences of a stream accept keyword arguments only"
        if self.chunk_parallel is not None:
            kwargs = self.chunk_parallel.shard(kwargs)
        epoch = kwargs.get("epoch", 1)
        dataset.set_epoch(epoch)
        size = max(1, (kwargs.get("max_tokens") or sys.maxsize) // dataset.length)
        return BlockIterator(
            dataset,
            min(size, kwargs.get("max_sentences") or size),
            seed=kwargs.get("seed", 1),
            num_shards=kwargs.get("num_shards", 1),
            shard_id=kwargs.get("shard_id", 0),
            num_workers=kwargs.get("num_workers", 0),
            epoch=epoch,
            buffer_size=kwargs.get("data_buffer_size", 0),
            skip_remainder_batch=kwargs.get("skip_remainder_batch", False),
        )

    def data_card(self) -> Card:
        """Return the card of the data: the subwords of the sentencepiece model, and the model's way to split text."""
        return {
            SOURCE: digest(unspelled("\n".join(self.dictionary.symbols))),
            **card_of_subwords(model_file(self.args)),
        }

    def unit(self) -> DocumentUnit:
        """Return the unit of documents: the subwords of the sentencepiece model."""
        return DocumentUnit(model_file(self.args))


def model_file(args: Any) -> Path:
    """Return the path of the sentencepiece model: of --subword-model, else in the first data folder."""
    return Path(args.subword_model or Path(utils.split_paths(args.data)[0]) / MODEL_FILE)
