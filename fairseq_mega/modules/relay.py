"""One sequence in several processes: each layer's memory is sent from each piece to the next, and its gradient back.

Each process runs all layers on its own piece. A layer waits for the memory of the piece before, and sends its own as
soon as the moving average has computed it. Attention and feed-forward follow while the next process begins. So process
i runs behind process 0 by i moving averages of one layer, once in a pass: the memory of later layers has arrived
already. Because the average is linear, a process could run it at once, and add the share of the memory on arrival. This
would save the one delay, but would cost a second pass over the outputs in every layer. It is impossible for MEGALODON,
whose input is normalised with the statistics that arrive.

Source: MEGALODON (Ma et al., NeurIPS 2024), section 3.5.
"""

from typing import Any, Dict, List, NamedTuple, Optional, Protocol, Sequence, Set, Tuple, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .state import named_tensors, with_named_tensors

Memory = TypeVar("Memory")  # tensors and None in NamedTuples, for instance LayerMemory


class Wire(Protocol):
    """Connection to the processes of the neighbouring pieces; messages are bytes, (n,) uint8."""

    first: bool  # no piece before this one
    last: bool  # no piece after this one

    def send(self, message: Tensor, forward: bool, tag: int) -> None:
        """Send to the next piece, or to the one before if not ``forward``; return before the message arrives."""
        ...

    def receive(self, message: Tensor, forward: bool, tag: int) -> None:
        """Wait for a message that was sent with the same direction and tag, and fill the tensor with it."""
        ...


class Relay:
    """Exchange of memory during one forward pass and the backward pass that follows.

    A layer that is recomputed for its gradient uses the memory that arrived at first, and sends nothing again.

    Args:
        wire: to the neighbours.
    """

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._tags: Dict[Any, int] = {}
        self._arrived: Dict[int, Tuple[Tensor, ...]] = {}
        self._sent: Set[int] = set()

    def receive(self, layer: Any, memory: Optional[Memory], like: Memory) -> Optional[Memory]:
        """Return the memory of all steps before this piece.

        Args:
            layer: whose memory, the same object in every call.
            memory: at the beginning of the sequence, for the first piece.
            like: a memory of the same shapes and dtypes.
        """
        if self._wire.first or not any(part.numel() for part in tensors_of(like)):
            return memory
        tag = self._tag(layer)
        if tag not in self._arrived:
            arrived = _Arrival.apply(_anchor(), self._wire, tag, tensors_of(like))
            self._arrived[tag] = tuple(part.detach() for part in arrived)
            return with_tensors(like, arrived)
        again = [part.detach().requires_grad_(_has_gradient(part.dtype)) for part in self._arrived[tag]]
        return with_tensors(like, again)

    def send(self, layer: Any, x: Tensor, memory: Memory) -> Tensor:
        """Send the memory after this piece to the next one.

        Args:
            layer: whose memory.
            x: hidden states that the layer uses next; the backward pass waits for the memory's gradient after that of x
                is complete.
            memory: after the last step.

        Returns:
            x, for the layer to use next.
        """
        tag, parts = self._tag(layer), tensors_of(memory)
        if self._wire.last or not any(part.numel() for part in parts):
            return x
        if tag in self._sent:
            return x.view_as(x)  # a view, as at first: a recomputed pass must save as many tensors
        self._sent.add(tag)
        return _Departure.apply(_anchor(), x, self._wire, tag, *parts)

    def _tag(self, layer: Any) -> int:
        return self._tags.setdefault(layer, len(self._tags))


class Form(NamedTuple):
    """Shape and dtype of a tensor that a message is unpacked to."""

    shape: torch.Size
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> "Form":
        return cls(tensor.shape, tensor.dtype)


class _Arrival(torch.autograd.Function):
    """Receive tensors; the backward pass sends their gradients back."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, wire: Wire, tag: int, like: Sequence[Tensor]) -> Any:
        arrived = _received(wire, True, tag, list(map(Form.of, like)), like[0].device)
        ctx.wire, ctx.tag = wire, tag
        ctx.sent_back = [_has_gradient(part.dtype) for part in arrived]
        ctx.mark_non_differentiable(*(part for part in arrived if not _has_gradient(part.dtype)))
        return tuple(arrived)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        chosen = [gradient for gradient, sent in zip(gradients, ctx.sent_back) if sent]
        ctx.wire.send(pack(chosen), False, ctx.tag)
        return None, None, None, None


class _Departure(torch.autograd.Function):
    """Send tensors; the backward pass waits for their gradients after the gradient of x."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, x: Tensor, wire: Wire, tag: int, *memory: Tensor) -> Any:
        wire.send(pack(memory), True, tag)
        ctx.wire, ctx.tag, ctx.device = wire, tag, x.device
        ctx.forms = list(map(Form.of, memory))
        return x.view_as(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Any:
        forms_with_gradient = [form for form in ctx.forms if _has_gradient(form.dtype)]
        arrived = iter(_received(ctx.wire, False, ctx.tag, forms_with_gradient, ctx.device))
        gradients = [next(arrived) if _has_gradient(form.dtype) else None for form in ctx.forms]
        return None, gradient, None, None, *gradients


def tensors_of(memory: Any) -> List[Tensor]:
    """Return the tensors of a memory, in order."""
    return list(named_tensors(memory).values())


def with_tensors(like: Any, tensors: Sequence[Tensor]) -> Any:
    """Return a memory of the form of ``like`` with other tensors."""
    return with_named_tensors(like, dict(zip(named_tensors(like), tensors)))


def pack(tensors: Sequence[Tensor]) -> Tensor:
    """Return the bytes (n,) of tensors, one after the other."""
    return torch.cat([part.detach().resolve_conj().contiguous().flatten().view(torch.uint8) for part in tensors])


def unpack(message: Tensor, forms: Sequence[Form]) -> List[Tensor]:
    """Return tensors of the given forms from their bytes."""
    parts = message.split([form.shape.numel() * form.dtype.itemsize for form in forms])
    # Each in separate memory, aligned as its type requires.
    return [part.clone().view(form.dtype).view(form.shape) for part, form in zip(parts, forms)]


def _received(wire: Wire, forward: bool, tag: int, forms: Sequence[Form], device: torch.device) -> List[Tensor]:
    size = sum(form.shape.numel() * form.dtype.itemsize for form in forms)
    message = torch.empty(size, dtype=torch.uint8, device=device)
    wire.receive(message, forward, tag)
    return unpack(message, forms)


def _has_gradient(dtype: torch.dtype) -> bool:
    return dtype.is_floating_point or dtype.is_complex


def _anchor() -> Tensor:
    """Return an empty tensor that requires a gradient, so that both ends of the wire are in every backward pass."""
    return torch.empty(0, requires_grad=True)
