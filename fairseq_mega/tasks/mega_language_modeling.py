"""Language modelling on long texts: training on blocks of random lengths, evaluation on streams with memory."""

import functools
import logging
import os
import re
from argparse import Namespace
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from fairseq import utils
from fairseq.data import FairseqDataset, data_utils, iterators
from fairseq.data.shorten_dataset import maybe_shorten_dataset
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from omegaconf import II, OmegaConf

from fairseq_mega.compat.processes.batches import is_for_training
from fairseq_mega.data.binarised_text import BinarisedText, TrainingBlockDataset
from fairseq_mega.data.streamed_segments import StreamedSegmentDataset
from fairseq_mega.data.text_units import TextUnit, encode_after_line_end, text_unit, unit_name
from fairseq_mega.models.streams.context import Context, load_context
from fairseq_mega.models.streams.continuation import ContinuationGenerator
from fairseq_mega.models.streams.scoring import Carry, ScoredOnce

from .chunk_parallel import ChunkParallel, ChunkParallelOptions, join

logger = logging.getLogger(__name__)


@dataclass
class MegaLanguageModelingConfig(ChunkParallelOptions, LanguageModelingConfig):
    """Options of ``--task mega_language_modeling``, beside those of fairseq's language_modeling."""

    tokens_per_sample: int = field(
        default=1024, metadata={"help": "tokens of a chunk if the model has no --decoder-chunk-size"}
    )
    variant_block_multiple_min: int = field(
        default=2, metadata={"help": "chunks of the shortest training block; every epoch has new random lengths"}
    )
    variant_block_multiple_max: int = field(default=6, metadata={"help": "chunks of the longest training block"})
    valid_block: str = field(
        default="splits:10",
        metadata={
            "help": "segments of validation and test text, each read with memory: splits:K, K segments; size:N, "
            "segments of up to N tokens; lines, each line without memory (prompts for fairseq-generate)"
        },
    )
    chunk_nums: int = field(default=2, metadata={"help": "chunks that an evaluation reads in one call"})
    test_chunk_size: int = field(
        default=0, metadata={"help": "attention chunk of a checkpoint in evaluation (default: as in training)"}
    )
    context: Optional[str] = field(
        default=None,
        metadata={
            "help": "file of the state after a text, which every prompt continues; fairseq-mega-interactive --read "
            "FILE --save-context CONTEXT writes the file"
        },
    )
    max_tokens: Optional[int] = II("dataset.max_tokens")


@register_task("mega_language_modeling", dataclass=MegaLanguageModelingConfig)
class MegaLanguageModelingTask(LanguageModelingTask):
    """Train on blocks of whole lines of {min..max} chunks; validate and test on streams of any length.

    Source: MEGA (Ma et al., ICLR 2023), section 4.3, and the published recipes.
    """

    def __init__(self, args: Any, dictionary: Any, output_dictionary: Any = None, targets: Any = None) -> None:
        super().__init__(args, dictionary, output_dictionary, targets)
        self.carry = Carry()
        self.context: Optional[Context] = None
        self.chunk_parallel: Optional[ChunkParallel] = None  # None unless processes share sequences
        self.chunk_size = args.tokens_per_sample
        self.segments, self.segment_size = segments_of(args.valid_block)
        self.exact_context: Optional[int] = None  # see StreamedSegmentDataset
        self.folder = Path((utils.split_paths(args.data or "") or ["."])[0])
        self.state.merge_state_dict({"unit": unit_name(self.folder)})  # checkpoints store the unit

    def build_model(self, args: Any, from_checkpoint: bool = False) -> Any:
        """Build the model and record its chunk size.

        Raises:
            ValueError: if the model's sequences cannot be shared.
        """
        changes: Dict[str, Any] = {}
        if from_checkpoint and self.args.test_chunk_size > 0:
            changes["decoder_chunk_size"] = self.args.test_chunk_size
        if from_checkpoint and getattr(args, "decoder_embed_path", None):
            changes["decoder_embed_path"] = None  # the checkpoint holds the vectors; the file may be gone
        is_config = OmegaConf.is_config(args)
        args = OmegaConf.merge(args, changes) if is_config else Namespace(**{**vars(args), **changes})
        model = super().build_model(args, from_checkpoint)
        if model.decoder.chunk_size > 0:
            self.chunk_size = model.decoder.chunk_size
        if self.args.chunk_parallel_size > 1 and not from_checkpoint:
            self.chunk_parallel = join(self.args, model, self.dictionary.pad())
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> FairseqDataset:
        """Load a split as blocks for training, else as streams (or lines, see ``--valid-block``).

        Raises:
            FileNotFoundError: if the split does not exist.
            ValueError: if the split is empty, or does not fit the options.
        """
        training = is_for_training(kwargs)
        if not training and self.segments == 0:
            mode, self.args.sample_break_mode = self.args.sample_break_mode, "eos"
            try:
                return super().load_dataset(split, epoch=epoch, combine=combine, **kwargs)
            finally:
                self.args.sample_break_mode = mode
        if self.args.sample_break_mode not in ("none", "complete", None):
            raise ValueError(f"--sample-break-mode {self.args.sample_break_mode}: blocks end elsewhere; omit it")
        text = self._text(split, epoch, combine, training)
        dataset = self._blocks(text) if training else self._streams(text)
        logger.info(f"{split}: {text.tokens:,} tokens in {len(dataset):,} blocks")
        self.datasets[split] = dataset
        return dataset

    def _text(self, split: str, epoch: int, combine: bool, training: bool) -> Any:
        folders = utils.split_paths(self.args.data)
        path = os.path.join(folders[(epoch - 1) % len(folders)], split)
        lines = data_utils.load_indexed_dataset(path, self.dictionary, self.args.dataset_impl, combine=combine)
        if lines is None:
            raise FileNotFoundError(f"Dataset not found: {split} ({path})")
        shortening = (self.args.shorten_data_split_list, self.args.shorten_method, self.args.tokens_per_sample)
        text = BinarisedText(maybe_shorten_dataset(lines, split, *shortening, self.args.seed), split)
        if not training and text.largest() >= len(self.dictionary):
            problem = f"it contains the token id {text.largest()}, and dict.txt has {len(self.dictionary)} entries"
            raise ValueError(f"{path} was binarised with another dictionary: {problem}")
        return text

    def _blocks(self, text: Any) -> Any:
        least, most = self.args.variant_block_multiple_min, self.args.variant_block_multiple_max
        longest = min(filter(None, (self.args.max_target_positions, self.args.max_tokens)), default=None)
        if longest is not None and longest < self.chunk_size * most:
            raise ValueError(f"--max-tokens or --max-target-positions {longest}: below {most} chunks of a block")
        return TrainingBlockDataset(text, self.dictionary, self.chunk_size, least, most, self.args.seed, longest)

    def _streams(self, text: BinarisedText) -> StreamedSegmentDataset:
        group = self.chunk_size * self.args.chunk_nums
        return StreamedSegmentDataset(
            text, self.dictionary, self.segments, group, self.exact_context, self.segment_size
        )

    def get_batch_iterator(self, dataset: FairseqDataset, *args: Any, **kwargs: Any) -> iterators.EpochBatchIterator:
        """Return fairseq's iterator; streams keep the order of their groups, and none is filtered by length."""
        if self.chunk_parallel is not None and isinstance(dataset, TrainingBlockDataset):
            kwargs = self.chunk_parallel.shard(kwargs)
        if not isinstance(dataset, StreamedSegmentDataset):
            return super().get_batch_iterator(dataset, *args, **kwargs)
        assert not args, "streams accept keyword arguments only"
        shards = kwargs.get("num_shards", 1)
        return iterators.EpochBatchIterator(
            dataset=dataset,
            collate_fn=dataset.collater,
            batch_sampler=dataset.batches(kwargs.get("max_tokens"), kwargs.get("max_sentences"), shards),
            num_shards=shards,
            shard_id=kwargs.get("shard_id", 0),
            num_workers=kwargs.get("num_workers", 0),
            buffer_size=kwargs.get("data_buffer_size", 0),
            disable_shuffling=True,
        )

    def train_step(self, sample: Dict[str, Any], model: Any, criterion: Any, *args: Any, **kwargs: Any) -> Any:
        """Train as fairseq does, with ``--chunk-parallel-size`` on this process's piece of the batch."""
        if self.chunk_parallel is None:
            return super().train_step(sample, model, criterion, *args, **kwargs)
        piece = self.chunk_parallel.begin(sample)
        loss, sample_size, logged = super().train_step(piece, model, criterion, *args, **kwargs)
        return loss, *self.chunk_parallel.count_sentences_once(criterion, sample_size, logged)

    def valid_step(self, sample: Dict[str, Any], model: Any, criterion: Any) -> Any:
        """Score a batch; the memory of streams goes from one batch to the next."""
        return super().valid_step(self.carry.added_to(sample), model, criterion)

    def eval_lm_dataloader(self, dataset: FairseqDataset, **kwargs: Any) -> Any:
        """Return batches for fairseq-eval-lm in the order of the text; see :class:`ScoredOnce`.

        Raises:
            ValueError: for options that cannot be combined with a carried memory.
        """
        if not isinstance(dataset, StreamedSegmentDataset):
            return super().eval_lm_dataloader(dataset, **kwargs)
        for option, most in (("num_shards", 1), ("context_window", 0)):
            if kwargs.get(option, most) > most:
                raise ValueError(
                    f"--{option.replace('_', '-')} {kwargs[option]}: one process reads a text with its memory carried "
                    f"(--distributed-world-size 1)"
                )
        batches = self.get_batch_iterator(dataset=dataset, max_sentences=kwargs.get("batch_size"), **kwargs)
        return ScoredOnce(batches.next_epoch_itr(shuffle=False), dataset, self.carry)

    def unit(self) -> TextUnit:
        """Return the unit of the data or of the checkpoint, which encodes text unless ``--bpe`` is passed.

        Raises:
            ValueError: if the subword model is missing or broken.
        """
        return text_unit(self.folder, self.state.unit)

    def get_interactive_tokens_and_lengths(self, lines: List[str], encode_fn: Callable[[str], str]) -> Any:
        """Return fairseq's tokens and lengths; with ``--context`` the lines continue the context's text."""
        if self.context is None:
            return super().get_interactive_tokens_and_lengths(lines, encode_fn)
        if self.context.last != self.dictionary.eos():
            encode_fn = functools.partial(encode_after_line_end, encode_fn)
        unread = self.context.unread
        return super().get_interactive_tokens_and_lengths([unread + line for line in lines], encode_fn)

    def build_generator(self, models: Any, args: Any, seq_gen_cls: Any = None, *further: Any, **kwargs: Any) -> Any:
        """Build fairseq's generator, with limits of length for each prompt, see ContinuationGenerator.

        Raises:
            OSError: if the file of ``--context`` cannot be opened.
            ValueError: if the prompts are streams, or ``--context`` does not belong to the models.
        """
        if any(isinstance(dataset, StreamedSegmentDataset) for dataset in self.datasets.values()):
            raise ValueError(f"--valid-block {self.args.valid_block}: a stream cannot be a prompt: give lines")
        generator = super().build_generator(models, args, seq_gen_cls or ContinuationGenerator, *further, **kwargs)
        if self.args.context is not None:
            self.context = load_context(Path(self.args.context), models, self.dictionary)
            generator.go_on_from(self.context)
        return generator


def segments_of(valid_block: str) -> Tuple[Optional[int], Optional[int]]:
    """Return K of ``--valid-block splits:K`` (0 for lines) and N of ``size:N``; the other one is None.

    Raises:
        ValueError: for another value.
    """
    if valid_block == "lines":
        return 0, None
    match = re.fullmatch(r"(splits|size):0*([1-9]\d*)", valid_block)
    if match is None:
        raise ValueError(f"--valid-block {valid_block}: give splits:K, size:N or lines, with K and N of 1 or more")
    number = int(match[2])
    return (number, None) if match[1] == "splits" else (None, number)
