"""Processes that share a sequence, played by threads of one process."""

import queue
import threading
from typing import Any, Callable, Dict, List, Tuple

import torch
from torch import Tensor

from fairseq_mega.modules.relay import Relay

PATIENCE = 20.0  # seconds, for a piece that failed and sends nothing


class QueueWire:
    """One end of the queues between the pieces of a sequence."""

    def __init__(self, piece: int, pieces: int, queues: Dict[Tuple[int, bool, int], Any], lock: Any) -> None:
        self.first, self.last = piece == 0, piece == pieces - 1
        self.piece, self.queues, self.lock = piece, queues, lock
        self.log: List[Tuple[str, bool, int]] = []

    def _queue(self, sender: int, forward: bool, tag: int) -> Any:
        with self.lock:
            return self.queues.setdefault((sender, forward, tag), queue.Queue())

    def send(self, message: Tensor, forward: bool, tag: int) -> None:
        self.log.append(("send", forward, tag))
        self._queue(self.piece, forward, tag).put(message.clone())

    def receive(self, message: Tensor, forward: bool, tag: int) -> None:
        self.log.append(("receive", forward, tag))
        message.copy_(self._queue(self.piece + (-1 if forward else 1), forward, tag).get(timeout=PATIENCE))


def run_pieces(work: Callable[[int, Relay], Any], pieces: int) -> Tuple[List[Any], List[QueueWire]]:
    """Call ``work(piece, relay)`` once for each piece, all at the same time; returns the results and the wires."""
    queues: Dict[Tuple[int, bool, int], Any] = {}
    lock = threading.Lock()
    wires = [QueueWire(piece, pieces, queues, lock) for piece in range(pieces)]
    results: List[Any] = [None] * pieces
    errors: List[BaseException] = []

    def run(piece: int) -> None:
        try:
            results[piece] = work(piece, Relay(wires[piece]))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(piece,)) for piece in range(pieces)]
    threads_of_torch = torch.get_num_threads()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torch.get_num_threads() == threads_of_torch
    if errors:
        raise errors[0]
    return results, wires
