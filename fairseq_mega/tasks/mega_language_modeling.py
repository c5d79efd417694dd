"""Language modelling on long texts: training on blocks of random lengths, evaluation on streams with memory."""

import functools
import logging
import os
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from fairseq import utils
from fairseq.data import FairseqDataset, data_utils, iterators
from fairseq.data.shorten_dataset import maybe_shorten_dataset
from fairseq.tasks import register_task
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask
from omegaconf import II, OmegaConf

from fairseq_mega.compat.checkpoints.pieces import warn_of_another_split
from fairseq_mega.compat.patches.batches import is_for_training
from fairseq_mega.compat.patches.launching import is_given
from fairseq_mega.data.binarised_text import BinarisedText
from fairseq_mega.data.streamed_segments import StreamedSegmentDataset
from fairseq_mega.data.text_units import TextUnit, encode_after_line_end, text_unit, unit_name
from fairseq_mega.data.training_blocks import TrainingBlockDataset
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.models.streams.context import Context, load_context
from fairseq_mega.models.streams.continuation import ContinuationGenerator
from fairseq_mega.models.streams.scoring import Carry, ScoredOnce, counted

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

    default_tokens_per_sample = MegaLanguageModelingConfig.tokens_per_sample
    training_dataset: type = TrainingBlockDataset  # class of the training dataset
    training_options = ("max_target_positions", "variant_block_multiple_min", "variant_block_multiple_max")
    lines = "lines"  # name of the units that </s> ends
    prompts = "give --valid-block lines to continue each line"  # remedy for a stream given as prompt

    def __init__(self, args: Any, dictionary: Any, output_dictionary: Any = None, targets: Any = None) -> None:
        super().__init__(args, dictionary, output_dictionary, targets)
        self.carry = Carry()
        self.context: Optional[Context] = None
        self.chunk_parallel: Optional[ChunkParallel] = None  # None unless processes share sequences
        self.chunk_size, self.chunk_option = args.tokens_per_sample, "--tokens-per-sample"
        self.segments = segments_of(args.valid_block)
        self.segment_size = segment_size_of(args.valid_block)
        self.exact_context: Optional[int] = None  # see StreamedSegmentDataset
        for option in ("chunk_nums", "tokens_per_sample"):
            if getattr(args, option) < 1:
                raise ValueError(f"--{option.replace('_', '-')} {getattr(args, option)}: must be at least 1")
        if args.chunk_parallel_size < 1:
            raise ValueError(f"--chunk-parallel-size {args.chunk_parallel_size}: must be at least 1")
        if args.test_chunk_size < 0:
            raise ValueError(f"--test-chunk-size {args.test_chunk_size}: give a chunk length, or leave it out")
        self.break_mode = args.sample_break_mode  # before "eos" replaces the value for lines
        if args.add_bos_token:
            raise ValueError("--add-bos-token: texts always begin with </s>, as in the recipes; leave it out")
        for option in ("pad_to_fixed_length", "pad_to_fixed_bsz"):
            if getattr(args, option, False):
                name = f"--{option.replace('_', '-')}"
                raise ValueError(f"{name}: blocks are always padded to the longest block of the batch; leave it out")
        if self.targets != ["future"]:
            raise ValueError(
                "--self-target and --past-target: a MEGA language model predicts only the next token; leave both out"
            )
        self.folder = Path((utils.split_paths(args.data or "") or ["."])[0])
        self.state.merge_state_dict({"unit": unit_name(self.folder, dictionary)})  # checkpoints store the unit

    def build_model(self, args: Any, from_checkpoint: bool = False) -> Any:
        """Build the model and record its chunk size.

        Raises:
            ValueError: if the model cannot carry a memory, or its sequences cannot be shared.
        """
        changes: Dict[str, Any] = {}
        if from_checkpoint and self.args.test_chunk_size > 0:
            changes["decoder_chunk_size"] = self.args.test_chunk_size
        if from_checkpoint and getattr(args, "decoder_embed_path", None):
            changes["decoder_embed_path"] = None  # the checkpoint holds the vectors; the file may be gone
        if OmegaConf.is_config(args):
            args = OmegaConf.merge(args, changes)
        else:
            vars(args).update(changes)
        model = super().build_model(args, from_checkpoint)
        if not isinstance(model, MegaLanguageModel):
            raise ValueError(
                f"--task mega_language_modeling requires a model with memory, and {type(model).__name__} has none: "
                f"give --arch mega_lm, megalodon_lm, llama_lm or one of their presets, or --task language_modeling"
            )
        if model.decoder.chunk_size > 0:
            self.chunk_size, self.chunk_option = model.decoder.chunk_size, "--decoder-chunk-size"
        if self.args.chunk_parallel_size > 1 and not from_checkpoint:
            longest = self.args.variant_block_multiple_max
            self.chunk_parallel = join(self.args, model, longest, self.dictionary.pad())
        return model

    def load_dataset(self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any) -> FairseqDataset:
        """Load a split as blocks for training, else as streams (or lines, see ``--valid-block``).

        Raises:
            FileNotFoundError: if the split does not exist.
            ValueError: if the split is empty, does not fit the options, or is both trained on and validated.
        """
        training = is_for_training(kwargs)
        if training and split in self.datasets and not isinstance(self.datasets[split], self.training_dataset):
            raise ValueError(
                f"--train-subset {split} is also in --valid-subset, but training and validation read a text in "
                f"different blocks: remove {split} from --valid-subset, and score it with fairseq-mega-eval-lm "
                f"--gen-subset {split}"
            )
        lines = not training and self.segments == 0
        self._refuse_other_blocks(lines)
        if lines:
            return self._lines(split, epoch=epoch, combine=combine, **kwargs)
        text = self._text(split, epoch, combine, training)
        self.datasets[split] = self._blocks(text) if training else self._streams(text)
        return self.datasets[split]

    def _refuse_other_blocks(self, lines: bool) -> None:
        """Raise a ValueError for options of fairseq's blocks of text that would have no effect."""
        mode = self.break_mode
        if mode not in ("none", "complete", None) and not (lines and mode == "eos"):
            raise ValueError(
                f"--sample-break-mode {mode}: blocks and segments always end at line ends: leave --sample-break-mode "
                f"out (for single lines give --valid-block lines)"
            )
        tokens, default = self.args.tokens_per_sample, type(self).default_tokens_per_sample
        used = lines or self.chunk_option == "--tokens-per-sample" or self.args.shorten_method not in ("none", None)
        shortened = is_given("--context-window", sys.argv)  # by fairseq-eval-lm
        if not (used or shortened) and tokens not in (default, self.chunk_size):
            raise ValueError(
                f"--tokens-per-sample {tokens}: the length of blocks depends on --decoder-chunk-size {self.chunk_size},"
                f" on --variant-block-multiple-min and -max in training, and on --chunk-nums in evaluation: leave "
                f"--tokens-per-sample out"
            )

    def _lines(self, split: str, **kwargs: Any) -> FairseqDataset:
        self.args.sample_break_mode = "eos"
        return super().load_dataset(split, **kwargs)

    def _text(self, split: str, epoch: int, combine: bool, training: bool) -> Any:
        paths = utils.split_paths(self.args.data)
        path = os.path.join(paths[(epoch - 1) % len(paths)], split)
        if os.path.exists(f"{path}.bin") and os.path.getsize(f"{path}.bin") == 0:
            raise ValueError(
                f"the split {split!r} has no token ({path}.bin is empty): binarise a text that is not empty"
            )
        lines = data_utils.load_indexed_dataset(path, self.dictionary, self.args.dataset_impl, combine=combine)
        if lines is None:
            several = ". One name at a time; NAME1, NAME2, ... are read with NAME" if training and "," in split else ""
            raise FileNotFoundError(f"Dataset not found: {split} ({path}){several}")
        others = [folder for folder in paths[1:] if os.path.exists(os.path.join(folder, f"{split}.idx"))]
        if others and not training:
            logger.warning(
                f"{split}: only the text of {paths[0]} is read, not the text of {', '.join(others)}: give one folder "
                f"at a time to score each text"
            )
        shortening = (self.args.shorten_data_split_list, self.args.shorten_method, self.args.tokens_per_sample)
        text = BinarisedText(maybe_shorten_dataset(lines, split, *shortening, self.args.seed), split)
        largest = 0 if training else text.largest()
        if largest >= len(self.dictionary):
            raise ValueError(
                f"{path} was binarised with another dictionary: it contains the number {largest}, and the dictionary "
                f"of the data folder has {len(self.dictionary)} symbols: binarise the text with --srcdict "
                f"{paths[0]}/dict.txt"
            )
        return text

    def limits(self) -> Dict[str, int]:
        """Return the options that limit the tokens of a training sequence, with their values."""
        given = {"--max-target-positions": self.args.max_target_positions, "--max-tokens": self.args.max_tokens}
        return {option: most for option, most in given.items() if most}

    def _blocks(self, text: Any) -> FairseqDataset:
        limits = self.limits()
        option = min(limits, key=lambda name: limits[name], default="")
        dataset = TrainingBlockDataset(
            text,
            self.dictionary,
            self.chunk_size,
            self.args.variant_block_multiple_min,
            self.args.variant_block_multiple_max,
            self.args.seed,
            limits.get(option),
            option,
            self.chunk_option,
        )
        logger.info(f"{text.name}: {text.tokens:,} tokens in {len(dataset):,} blocks, drawn anew every epoch")
        return dataset

    def _streams(self, text: BinarisedText) -> StreamedSegmentDataset:
        group = self.chunk_size * self.args.chunk_nums
        dataset = StreamedSegmentDataset(
            text, self.dictionary, self.segments, group, self.exact_context, self.segment_size
        )
        logger.info(
            f"{text.name}: {text.tokens:,} tokens of {len(text.ends):,} {self.lines} in {counted(dataset.segments)}, "
            f"read as {len(dataset):,} examples of up to {dataset.group:,} tokens ({self.args.chunk_nums} chunks of "
            f"{self.chunk_size})"
        )
        return dataset

    def get_batch_iterator(self, dataset: FairseqDataset, *args: Any, **kwargs: Any) -> iterators.EpochBatchIterator:
        """Return fairseq's iterator; streams keep the order of their groups, and none is filtered by length."""
        if self.chunk_parallel is not None and isinstance(dataset, TrainingBlockDataset):
            kwargs = self.chunk_parallel.shard(kwargs)
        if not isinstance(dataset, StreamedSegmentDataset):
            return super().get_batch_iterator(dataset, *args, **kwargs)
        assert not args, "streams take keyword arguments only"
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
        shards = kwargs.pop("num_shards", 1)
        if shards > 1:
            raise ValueError(
                f"--num-shards {shards}: one process must read a text with carried memory; leave --num-shards out (on "
                f"a machine with several GPUs give --distributed-world-size 1)"
            )
        if kwargs.pop("context_window", 0) > 0:
            raise ValueError("--context-window: streams always carry their whole context; leave --context-window out")
        batches = self.get_batch_iterator(
            dataset=dataset,
            max_tokens=kwargs.get("max_tokens"),
            max_sentences=kwargs.get("batch_size"),
            num_workers=kwargs.get("num_workers", 0),
            data_buffer_size=kwargs.get("data_buffer_size", 0),
        )
        return ScoredOnce(batches.next_epoch_itr(shuffle=False), dataset, self.carry)

    def unit(self) -> TextUnit:
        """Return the unit of the data or of the checkpoint, which encodes text unless ``--bpe`` is given.

        Raises:
            ValueError: if the subword model is missing or broken.
        """
        return text_unit(self.folder, self.dictionary, self.state.unit)

    def get_interactive_tokens_and_lengths(self, lines: List[str], encode_fn: Callable[[str], str]) -> Any:
        """Return fairseq's tokens and lengths; with ``--context`` the lines continue the context's text."""
        if self.context is None:
            return super().get_interactive_tokens_and_lengths(lines, encode_fn)
        warn_of_another_split(self, self.context.encoders)
        if self.context.last != self.dictionary.eos():
            encode_fn = functools.partial(encode_after_line_end, encode_fn)
        unread = self.context.unread
        return super().get_interactive_tokens_and_lengths([unread + line for line in lines], encode_fn)

    def build_generator(self, models: Any, args: Any, seq_gen_cls: Any = None, *further: Any, **kwargs: Any) -> Any:
        """Build fairseq's generator, with limits of length for each prompt, see ContinuationGenerator.

        Raises:
            OSError: if the file of ``--context`` cannot be opened.
            ValueError: if the prompts are streams, ``--context`` does not belong to the models, or ``--unkpen`` is
                given.
        """
        streams = [name for name, dataset in self.datasets.items() if isinstance(dataset, StreamedSegmentDataset)]
        if streams:
            raise ValueError(
                f"--valid-block {self.args.valid_block}: the split {streams[0]!r} is read as a stream, which cannot be "
                f"a prompt; {self.prompts}"
            )
        penalty = getattr(args, "unkpen", 0)
        if penalty:
            raise ValueError(f"--unkpen {penalty:g}: language models never generate <unk>; leave --unkpen out")
        generator = super().build_generator(models, args, seq_gen_cls or ContinuationGenerator, *further, **kwargs)
        if self.args.context is not None:
            if not isinstance(generator, ContinuationGenerator):
                raise ValueError(
                    f"--context {self.args.context} cannot be combined with --score-reference: leave one of them out"
                )
            self.context = load_context(Path(self.args.context), models, self.dictionary)
            generator.go_on_from(self.context)
        return generator


def segments_of(valid_block: str) -> Optional[int]:
    """Return K of ``--valid-block splits:K``, 0 for lines, None for segments of a size.

    Raises:
        ValueError: for another value.
    """
    match = re.fullmatch(r"(splits|size):0*([1-9]\d*)", valid_block)
    if valid_block == "lines":
        return 0
    if match is None:
        raise ValueError(
            f"--valid-block {valid_block}: give splits:K with K >= 1 segments, size:N with N >= 1 tokens in a segment, "
            f"or lines"
        )
    return int(match[2]) if match[1] == "splits" else None


def segment_size_of(valid_block: str) -> Optional[int]:
    """Return N of ``--valid-block size:N``, else None."""
    kind, _, number = valid_block.partition(":")
    return int(number) if kind == "size" else None
