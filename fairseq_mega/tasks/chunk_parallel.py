"""Chunk parallelism: the processes of a group share every sequence, each with a piece of whole chunks.

fairseq treats all processes as data parallel. The processes of a group read the same batch. Each process scores and
counts only the targets of its own piece. fairseq sums gradients, losses, tokens and sample sizes over all processes, so
every token counts once in them, in the clipped norm and in the log.
"""

from dataclasses import dataclass, field
from typing import Any, Dict, List, Tuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from fairseq.dataclass import FairseqDataclass

from fairseq_mega.models.process_wire import ProcessWire
from fairseq_mega.modules.dropout import Dropout
from fairseq_mega.modules.ema import MultiDimensionalDampedEMA
from fairseq_mega.modules.norm import BatchNorm
from fairseq_mega.modules.relay import Relay


@dataclass
class ChunkParallelOptions(FairseqDataclass):
    """Options of tasks whose training sequences may be shared by several processes."""

    chunk_parallel_size: int = field(
        default=1,
        metadata={
            "help": "processes that share each training sequence, a divisor of --distributed-world-size; --max-tokens "
            "counts whole sequences"
        },
    )
    chunk_parallel_timeout: float = field(
        default=60.0, metadata={"help": "maximum seconds that a process waits for the memory of a piece"}
    )


class ChunkParallel:
    """This process's part of a training on shared sequences.

    Args:
        wire: connection to the other processes of the group.
        chunk_size: chunk of the attention; pieces begin at the beginning of a chunk.
        padding_idx: target that is not scored.
    """

    def __init__(self, wire: ProcessWire, chunk_size: int, padding_idx: int) -> None:
        self.wire, self.chunk_size, self.padding_idx = wire, chunk_size, padding_idx

    def shard(self, options: Dict[str, Any]) -> Dict[str, Any]:
        """Return the arguments of a batch iterator with one shard for each group instead of one for each process."""
        shards, shard = options.get("num_shards", 1), options.get("shard_id", 0)
        return {**options, "num_shards": shards // self.wire.size, "shard_id": shard // self.wire.size}

    def begin(self, sample: Dict[str, Any]) -> Dict[str, Any]:
        """Return this process's piece of a batch, with the relay for one pass.

        Raises:
            LostNeighbour: if a process of the group has ended.
        """
        self.wire.meet()
        # fairseq seeds all processes alike: all pieces of a sequence would have the same dropout masks.
        torch.manual_seed(int(torch.randint(2**62, ())) + self.wire.piece)
        piece = self.piece_of(sample)
        return {**piece, "net_input": {**piece["net_input"], "relay": Relay(self.wire)}}

    def piece_of(self, sample: Dict[str, Any]) -> Dict[str, Any]:
        """Return a batch with this process's steps only, or with one step of padding if its piece is empty."""
        tokens, target = sample["net_input"]["src_tokens"], sample["target"]
        begin, end = bounds(target.size(1), self.chunk_size, self.wire.size)[self.wire.piece]
        absent = int(begin == end)
        tokens, target = (F.pad(part[:, begin:end], (0, absent), value=self.padding_idx) for part in (tokens, target))
        scored = int(target.ne(self.padding_idx).sum())
        lengths = tokens.ne(self.padding_idx).sum(1)
        inputs = {**sample["net_input"], "src_tokens": tokens, "src_lengths": lengths}
        return {**sample, "net_input": inputs, "target": target, "ntokens": scored}

    def count_sentences_once(
        self, criterion: Any, sample_size: Any, logged: Dict[str, Any]
    ) -> Tuple[Any, Dict[str, Any]]:
        """Return a criterion's sample size and log; only the first piece counts the sentences."""
        if self.wire.first:
            return sample_size, logged
        logged = {**logged, "nsentences": 0}
        if getattr(criterion, "sentence_avg", False):
            return 0, {**logged, "sample_size": 0}
        return sample_size, logged


def bounds(length: int, chunk_size: int, pieces: int) -> List[Tuple[int, int]]:
    """Return first step and end of each piece of a sequence: whole chunks, evenly distributed, empty pieces last."""
    each, rest = divmod(-(-length // chunk_size), pieces)
    cuts = [min(length, chunk_size * (piece * each + min(piece, rest))) for piece in range(pieces + 1)]
    return list(zip(cuts, cuts[1:]))


def join(options: Any, model: Any, padding_idx: int) -> ChunkParallel:
    """Create the groups of processes; all processes must call this function together.

    Args:
        options: options of the task, with ChunkParallelOptions and variant_block_multiple_max.
        model: model to train.
        padding_idx: padding token of the dictionary.

    Raises:
        ValueError: if the processes or the model cannot share sequences.
    """
    size, chunk = options.chunk_parallel_size, model.decoder.chunk_size
    flag = f"--chunk-parallel-size {size}"
    world = dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1
    if world % size != 0:
        raise ValueError(f"{flag} does not divide the number of processes {world}: give a divisor of it")
    if chunk < 1:
        raise ValueError(f"{flag} cuts sequences between chunks: give --decoder-chunk-size, or omit {flag}")
    longest = options.variant_block_multiple_max * chunk
    for problem in filter(None, (_needs_whole_sequences(part, longest) for part in model.modules())):
        raise ValueError(f"{flag} cuts sequences, and {problem} requires whole ones: omit one of the two options")
    return ChunkParallel(ProcessWire(size, options.chunk_parallel_timeout), chunk, padding_idx)


def _needs_whole_sequences(part: Any, longest: int) -> str:
    """Return the option by which a part of a model requires whole sequences of up to ``longest`` steps; "" for none."""
    if isinstance(part, MultiDimensionalDampedEMA) and (part.truncation or longest) < longest:
        return f"--truncation-length {part.truncation} (below {longest} tokens)"
    if isinstance(part, Dropout) and part.feature and part.p > 0:
        return "--feature-dropout"
    return "--normalization-type batchnorm" if isinstance(part, BatchNorm) else ""
