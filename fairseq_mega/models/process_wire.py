"""Wire between processes that share sequences: torch.distributed with gloo on CPUs and NCCL on GPUs."""

import contextlib
from datetime import timedelta
from typing import Any, Iterator, List, Tuple

import torch.distributed as dist
from torch import Tensor

BETWEEN_PASSES = timedelta(hours=1)  # a neighbour may write a large checkpoint or validate a longer text


class LostNeighbour(RuntimeError):
    """Error for a process of the group that ended, or sent nothing in time."""


class ProcessWire:
    """Connection of the processes that share sequences, a :class:`fairseq_mega.modules.relay.Wire`.

    A group has ``size`` processes of consecutive ranks: rank r holds piece r % size. All processes must create their
    ProcessWire together.

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
            # gloo on all devices: it detects at once that a process has ended.
            meeting = dist.new_group(ranks, timeout=BETWEEN_PASSES, backend="gloo")
            if start == self.start:
                self._messages, self._meeting = messages, meeting
        self._leaving: List[Tuple[Any, Tensor]] = []  # messages must stay in memory until they are sent

    def meet(self) -> None:
        """Wait for all processes of the group, to begin a pass together.

        Raises:
            LostNeighbour: if a process has ended.
        """
        with self._explained("not all of them began the next batch"):
            for work, _ in self._leaving:
                work.wait()
            self._leaving.clear()
            dist.barrier(self._meeting)

    def send(self, message: Tensor, forward: bool, tag: int) -> None:
        """See :meth:`fairseq_mega.modules.relay.Wire.send`."""
        to = self.piece + (1 if forward else -1)
        with self._explained(f"piece {self.piece} could not send to piece {to}"):
            self._leaving.append((dist.isend(message, self.start + to, self._messages, tag), message))

    def receive(self, message: Tensor, forward: bool, tag: int) -> None:
        """See :meth:`fairseq_mega.modules.relay.Wire.receive`.

        Raises:
            LostNeighbour: if the sending process has ended, or does not send in time.
        """
        source = self.piece + (-1 if forward else 1)
        with self._explained(f"piece {self.piece} received nothing from piece {source} within {self.timeout:g} s"):
            work = dist.irecv(message, self.start + source, self._messages, tag)
            assert work is not None  # this process belongs to the group
            work.wait()

    @contextlib.contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        """Raise LostNeighbour in place of an error of torch."""
        try:
            yield
        except RuntimeError as error:
            ranks = f"{self.start} to {self.start + self.size - 1}"
            raise LostNeighbour(
                f"the processes of ranks {ranks} share sequences, and {what}: a process ended or hangs "
                f"({str(error).splitlines()[0]}); see the last message of each process"
            ) from error
