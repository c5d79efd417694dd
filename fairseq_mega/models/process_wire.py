"""The wire between processes that share sequences: torch.distributed, gloo on CPUs and NCCL on GPUs."""

import contextlib
from datetime import timedelta
from typing import Any, Iterator, List, Tuple

import torch.distributed as dist
from torch import Tensor

BETWEEN_PASSES = timedelta(hours=1)  # a neighbour may be writing a large checkpoint, or validate a longer text


class LostNeighbour(RuntimeError):
    """A process of the group ended, or sent nothing in time."""


class ProcessWire:
    """Connection of the processes that share sequences, a :class:`fairseq_mega.modules.relay.Wire`.

    Groups are of ``size`` processes of consecutive ranks: rank r holds piece r % size. All processes have to make
    theirs at the same time.

    Args:
        size: pieces of a sequence, a divisor of the number of processes.
        timeout: maximum seconds for one message within a pass.
    """

    def __init__(self, size: int, timeout: float) -> None:
        self.size, self.timeout = size, timeout
        rank = dist.get_rank()
        self.piece, self.start = rank % size, rank - rank % size
        self.first, self.last = self.piece == 0, self.piece == size - 1
        for start in range(0, dist.get_world_size(), size):
            ranks = list(range(start, start + size))
            messages = dist.new_group(ranks, timeout=timedelta(seconds=timeout))
            # By gloo everywhere: it notices at once that a process is gone.
            meeting = dist.new_group(ranks, timeout=BETWEEN_PASSES, backend="gloo")
            if start == self.start:
                self._messages, self._meeting = messages, meeting
        self._leaving: List[Tuple[Any, Tensor]] = []  # what is sent has to stay in memory until it is

    def meet(self) -> None:
        """Wait until all processes of the group are here, to begin a pass together.

        Raises:
            LostNeighbour: if one is gone.
        """
        with self._explained("not all of them began the next batch"):
            for work, _ in self._leaving:
                work.wait()
            self._leaving.clear()
            dist.barrier(self._meeting)

    def send(self, message: Tensor, forward: bool, tag: int) -> None:
        """See :meth:`fairseq_mega.modules.relay.Wire.send`."""
        to = self.piece + (1 if forward else -1)
        with self._explained(f"piece {self.piece} could send nothing to piece {to}"):
            self._leaving.append((dist.isend(message, self.start + to, self._messages, tag), message))

    def receive(self, message: Tensor, forward: bool, tag: int) -> None:
        """See :meth:`fairseq_mega.modules.relay.Wire.receive`.

        Raises:
            LostNeighbour: if the process that is to send it is gone, or does not within the time.
        """
        source = self.piece + (-1 if forward else 1)
        with self._explained(f"piece {self.piece} got nothing from piece {source} within {self.timeout:g} s"):
            work = dist.irecv(message, self.start + source, self._messages, tag)
            assert work is not None  # this process is of the group
            work.wait()

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Raise LostNeighbour in place of an error of torch."""
        try:
            yield
        except RuntimeError as error:
            ranks = f"{self.start} to {self.start + self.size - 1}"
            raise LostNeighbour(
                f"the processes of ranks {ranks} share sequences, and {what}: one of them ended or hangs "
                f"({str(error).splitlines()[0]}); see its last message"
            ) from error
