"""Cost of a model: its parameters, the operations of a pass, and the memory of a training step.

Models are those of :func:`fairseq_mega.models.on_paper.build`: nothing is computed, and no memory is used.
"""

import contextlib
import functools
import os
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type

import torch
from fairseq.modules import AdaptiveInput, AdaptiveSoftmax
from fairseq.modules.multihead_attention import MultiheadAttention
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_mega.modules.classifier_head import ClassifierHead
from fairseq_mega.modules.cross_attention import GatedCrossAttention
from fairseq_mega.modules.ema import MultiDimensionalDampedEMA
from fairseq_mega.modules.gated_attention import GatedAttention
from fairseq_mega.modules.images import ImageHead
from fairseq_mega.modules.llama_layer import LlamaLayer
from fairseq_mega.modules.megalodon.attention import NormalizedGatedAttention
from fairseq_mega.modules.megalodon.complex_ema import ComplexEMA
from fairseq_mega.modules.state_space import DiagonalStateSpace
from fairseq_mega.modules.transformer_layer import TransformerLayer
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import VARIABLE
from fairseq_mega.ops.common.operations import attention_operations, average_operations
from fairseq_mega.ops.cross_entropy import cross_entropy

from .decoder import DecoderStack, LanguageModelDecoder
from .on_paper import build, built

WIDE, NARROW = 4, 2  # bytes of float32 and bfloat16
STATE = 4 * WIDE  # bytes of a parameter: weight, gradient, Adam's two moments
LOSS = 8 * WIDE  # bytes of a token beside an adaptive softmax: its losses and their gradients, sums, and its target
INDEX = 24  # bytes of the places, classes and targets of a token in a rarer band
MASK = 9  # bytes of a token's mask and place in the bands of an adaptive input
KERNELS = "native,attention=native_blocks"  # value of FAIRSEQ_MEGA_PATHS
UNCHUNKED = 4096  # tokens of the longer measured sequence if attention has no chunks
GIB = 2**30


def parameters(model: nn.Module) -> int:
    """Return the number of a model's parameters; shared parameters count once."""
    return sum(parameter.numel() for parameter in model.parameters())


# Operations: two for each product that is added to a sum.


def operations(model: nn.Module, length: int) -> float:
    """Return the floating-point operations of a forward pass for each position of sequences of ``length`` positions.

    Every weight of a linear map multiplies every position. Attention multiplies every visible pair of positions, on
    average half of the pairs if it is causal. A moving average is three FFTs of twice the length. Norms, activations
    and the head of a classifier, which reads one vector of a sequence, are not counted. A translation has as many
    source positions as target positions.
    """
    own, whole = 0.0, False
    for kind, formula in FORMULAS.items():
        if isinstance(model, kind):
            own += formula(model, length)
            whole = whole or kind in WHOLE
    return own if whole else own + sum(operations(part, length) for part in model._modules.values() if part is not None)


def training_products(model: nn.Module, length: int) -> float:
    """Return the operations of all matrix products of a forward and backward pass for each position.

    A linear map has three products. Attention has two products forward; backward it computes the weights again, and
    four products of gradients, so that it has four of width z and three of width v. Moving averages are not counted.
    """
    counted = 0.0
    for part in model.modules():
        if isinstance(part, nn.Linear):
            counted += 6.0 * part.weight.numel()
        elif isinstance(part, (GatedAttention, NormalizedGatedAttention)):
            width = 4 * part.kappa.size(-1) + 3 * part.output_proj.in_features
            counted += _attention(width, length, part.chunk_size, part.causal)
    return counted


def _attention(width: int, length: int, chunk: int = -1, causal: bool = False) -> float:
    """Return the operations of queries with keys and of weights with values, whose widths add up to ``width``."""
    seen = length if chunk < 0 else min(chunk, length)
    return attention_operations(width, seen, seen, causal) / seen


def _gated_attention(module: Any, length: int) -> float:
    return _attention(module.output_proj.in_features + module.kappa.size(-1), length, module.chunk_size, module.causal)


def _convolution(module: Any, length: int) -> float:
    used = getattr(module, "ema_dim", 1) > 0
    return average_operations(module.embed_dim, length) / length * used


def _output_table(module: Any, length: int) -> float:
    return 2.0 * module.output_matrix.numel() if module.adaptive_softmax is None and module.shared_output else 0.0


def _adaptive_input(module: Any, length: int) -> float:
    shares, bands = zipf_shares(tuple(module.cutoff)), module.embeddings
    return 2.0 * sum(share * band[1].weight.numel() for share, band in zip(shares, bands))


def _adaptive_softmax(module: Any, length: int) -> float:
    d, ends, shares = module.input_dim, module.cutoff, zipf_shares(tuple(module.cutoff))
    rare = zip(shares[1:], ends, ends[1:])
    tails = [share * (d + high - low) * (d // module.factor**band) for band, (share, low, high) in enumerate(rare, 1)]
    return 2.0 * (d * (ends[0] + len(ends) - 1) + sum(tails))


FORMULAS: Dict[Type[Any], Callable[[Any, int], float]] = {
    nn.Linear: lambda module, length: 2.0 * module.weight.numel(),
    nn.Conv2d: lambda module, length: 2.0 * module.weight.numel(),
    GatedAttention: _gated_attention,
    NormalizedGatedAttention: _gated_attention,
    GatedCrossAttention: lambda module, length: _attention(sum(module.widths), length),
    TransformerLayer: lambda module, length: _attention(2 * module.output_proj.in_features, length),
    LlamaLayer: lambda module, length: _attention(2 * module.output_proj.in_features, length, causal=True),
    MultiheadAttention: lambda module, length: _attention(2 * module.embed_dim, length),
    MultiDimensionalDampedEMA: _convolution,
    ComplexEMA: _convolution,
    DiagonalStateSpace: _convolution,
    DecoderStack: _output_table,
    AdaptiveInput: _adaptive_input,
    AdaptiveSoftmax: _adaptive_softmax,
    ClassifierHead: lambda module, length: 0.0,
    ImageHead: lambda module, length: 0.0,
}
WHOLE = (AdaptiveInput, AdaptiveSoftmax, ClassifierHead, ImageHead)  # their formula includes their parts


# Memory: bytes that PyTorch's allocator would hold, measured in a pass of tensors without storage.


class Activations(NamedTuple):
    """Maximum bytes that a backward pass holds for each token."""

    output: float  # before it reaches the layers
    layers: float  # within them


class Step(NamedTuple):
    """Bytes that a training step of a language model holds at the beginning of its backward pass."""

    state: int  # independent of the length
    token: int  # for each token of the sequence; with ``checkpoint_activations`` the maximum over the backward pass
    parameters: int

    def context(self, memory: float) -> int:
        """Return the tokens of the longest sequence whose step fits into ``memory`` bytes; 0 if the state does not."""
        return max(int((memory - self.state) // self.token), 0)


def training_step(options: Mapping[str, Any], vocab_size: int, bf16: bool = False) -> Step:
    """Estimate the memory of a training step on one sequence with the CPU's compiled kernels, else with PyTorch's.

    At the beginning of the backward pass these are weights, gradients and Adam's two moments; for each token, the
    tensors that every layer keeps, the embedding, and logit and gradient of each token. With
    ``checkpoint_activations`` a layer keeps only its input until it runs again. With few tokens the last layer's
    backward pass holds more, by less than another layer.

    Layers run at two lengths of whole chunks, in models of one and of two layers. The lengths are long, so weights and
    their gradients, which are part of the state, do not affect the moment of maximum memory.

    Args:
        options: options of a language model of this package, as for :func:`build`.
        vocab_size: V, size of its dictionary.
        bf16: whether the training runs under autocast to bfloat16, which copies all weights.

    Raises:
        ValueError: for other models, for adaptive tables in bfloat16, or as :func:`build`.
    """
    decoder = language_model(options, vocab_size)
    adaptive = isinstance(decoder.embedding.tokens, AdaptiveInput), decoder.adaptive_softmax is not None
    if bf16 and any(adaptive):
        raise ValueError("--precision bf16: adaptive tables are in float32; give fp32")
    one, others = _bytes_of_token(options, 1, vocab_size, bf16), len(decoder.layers) - 1
    if decoder.checkpoint_activations:
        kept = float(WIDE * width_of(decoder))  # the input of a layer
    else:
        kept = _bytes_of_token(options, 2, vocab_size, bf16).output - one.output
    output, layers = (first + others * kept for first in one)
    inputs = _adaptive_input_bytes(decoder.embedding.tokens) if adaptive[0] else 0.0
    output += inputs + (_adaptive_softmax_bytes(decoder.adaptive_softmax) if adaptive[1] else 0.0)
    token = max(output, layers + inputs) if decoder.checkpoint_activations else output
    count = parameters(decoder)
    return Step((STATE + NARROW * bf16) * count, round(token), count)


def width_of(decoder: LanguageModelDecoder) -> int:
    """Return d, the width of the decoder's layers."""
    embedding: Any = decoder.embedding
    return int(embedding.tokens.embedding_dim if embedding.projection is None else embedding.projection.out_features)


def language_model(options: Mapping[str, Any], vocab_size: int, own: bool = False) -> LanguageModelDecoder:
    """Return the decoder of a language model on the meta device, which must not be changed unless it is ``own``.

    Raises:
        ValueError: if the model is not a language model of this package, or as :func:`build`.
    """
    decoder = getattr((build if own else built)(options, vocab_size), "decoder", None)
    if not isinstance(decoder, LanguageModelDecoder):
        raise ValueError(f"{options['_name']} is not a language model of this package")
    return decoder


class _Living(TorchDispatchMode):
    """Count the bytes of storages that operators created within this mode and that still exist."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: Dict[StorageWeakRef, int] = {}
        self.watched = False
        self.most = 0  # maximum bytes after an operator while watched

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        if function is torch.ops.prim.device.default:  # most calls; those of the fake tensors are slow
            return args[0].fake_device
        result, grown = function(*args, **(kwargs or {})), False
        for value in (result,) if isinstance(result, Tensor) else result if isinstance(result, (tuple, list)) else ():
            if isinstance(value, Tensor):
                storage = value.untyped_storage()
                known, size = StorageWeakRef(storage), storage.nbytes()
                grown = grown or self.storages.get(known) != size
                self.storages[known] = size
        if grown and self.watched:
            self.most = max(self.most, self.now())
        return result

    def now(self) -> int:
        self.storages = {storage: size for storage, size in self.storages.items() if not storage.expired()}
        return sum(self.storages.values())


_MEASURED: Dict[Tuple[str, ...], Activations] = {}  # cache: a measurement takes a second, and tables repeat it


def _bytes_of_token(options: Mapping[str, Any], layers: int, vocab_size: int, bf16: bool) -> Activations:
    """Return the bytes that the backward pass on one sequence holds for each token, without adaptive tables."""
    given = {**options, "decoder_layers": layers}
    key = (repr(sorted(given.items())), repr((vocab_size, bf16)), os.environ.get(VARIABLE, ""))
    if key in _MEASURED:
        return _MEASURED[key]
    decoder = language_model(given, vocab_size, own=True)
    short, long = 32 * decoder.chunk_size, 48 * decoder.chunk_size
    if decoder.chunk_size < 0:
        # Tables of rotations have the next power of two of positions: both lengths share one size, which cancels out.
        long = 1 << max(4, min(UNCHUNKED, decoder.longest)).bit_length() - 1
        short = long * 3 // 4
    with FakeTensorMode(allow_non_fake_inputs=True), compiled_kernels():
        decoder.to_empty(device="cpu").train()
        for parameter in decoder.parameters():
            parameter.register_post_accumulate_grad_hook(_forget_gradient)  # it is part of the state
        less, more = (_held(decoder, length, bf16) for length in (short, long))
    _MEASURED[key] = Activations(*((high - low) / (long - short) for low, high in zip(less, more)))
    return _MEASURED[key]


def _forget_gradient(parameter: Tensor) -> None:
    parameter.grad = None


def _held(decoder: LanguageModelDecoder, length: int, bf16: bool) -> Activations:
    """Return the maximum bytes that the backward pass on one sequence holds before the layers and within them."""
    tokens = torch.zeros(1, length, dtype=torch.long)
    most: List[int] = []

    def reach_layers(grad: Tensor) -> None:
        most.append(held.most)
        held.most = 0

    def note(layer: nn.Module, inputs: Any, output: Any) -> None:
        output.hidden.register_hook(reach_layers)

    hook = decoder.layers[-1].register_forward_hook(note)
    with _Living() as held:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            if isinstance(decoder.embedding.tokens, AdaptiveInput):
                x = torch.zeros(1, length, width_of(decoder)).requires_grad_()
            else:
                x = decoder.embedding(tokens)
            hidden = decoder.run_layers(x).hidden
            hook.remove()
            if decoder.adaptive_softmax is not None:
                before = held.now() + LOSS * length
                held.watched = True
                hidden.backward(torch.zeros(()).expand_as(hidden))
                return Activations(before, held.most)
            losses = cross_entropy(decoder.output_layer(hidden)[0], tokens[0], ignore_index=decoder.padding_idx)
            loss = losses[0].sum()
            del x, hidden, losses  # a criterion returns the loss alone
        held.watched = True
        loss.backward()
    return Activations(most[0], held.most)


@contextlib.contextmanager
def compiled_kernels() -> Iterator[None]:
    """Make operators use their compiled kernels on any processor, unless the environment chooses others."""
    given = os.environ.get(VARIABLE)
    if native.PROBLEM is None:
        os.environ[VARIABLE] = ",".join(filter(None, [KERNELS, given]))
    try:
        yield
    finally:
        if given is None:
            os.environ.pop(VARIABLE, None)
        else:
            os.environ[VARIABLE] = given


# Adaptive tables: the rows that a step reads depend on its tokens, so their memory is a formula. A token requires the
# head and its own band. The backward pass begins with all logits and holds the gradients of one band at a time, at most
# of the widest band. Dropout within the tables is not counted. Source: AdaptiveSoftmax and AdaptiveInput of fairseq.


@functools.lru_cache(maxsize=8)
def zipf_shares(ends: Tuple[int, ...]) -> List[float]:
    """Return the shares of a text in the bands of a dictionary sorted by frequency; word n has frequency ~ 1 / n.

    Args:
        ends: ends of the bands; the last end is the number of tokens.
    """
    sums, total = [], 0.0
    for number in range(1, ends[-1] + 1):
        total += 1 / number
        if number in ends:
            sums.append(total)
    return [(high - low) / total for low, high in zip([0.0, *sums], sums)]


def _adaptive_softmax_bytes(softmax: AdaptiveSoftmax) -> float:
    ends, d, shares = softmax.cutoff, softmax.input_dim, zipf_shares(tuple(softmax.cutoff))
    widths = [ends[0] + len(ends) - 1.0]
    widths += [share * (high - low) for share, low, high in zip(shares[1:], ends, ends[1:])]
    rare = [WIDE * (d + d // softmax.factor**band) + INDEX for band in range(1, len(ends))]
    return WIDE * (sum(widths) + max(widths)) + sum(share * size for share, size in zip(shares[1:], rare))


def _adaptive_input_bytes(table: AdaptiveInput) -> float:
    shares = zipf_shares(tuple(table.cutoff))
    return MASK + sum(WIDE * share * band[0].embedding_dim for share, band in zip(shares, table.embeddings))
