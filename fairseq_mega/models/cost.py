"""Cost of a model: its parameters, the operations of a pass, and the memory of a training step.

Models are those of :func:`fairseq_mega.models.on_paper.build`: nothing is computed, and nothing takes memory.
"""

import contextlib
import functools
import math
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
from fairseq_mega.ops.cross_entropy import cross_entropy

from .decode_weights import OutputTable
from .mega_lm_decoder import LanguageModelDecoder
from .on_paper import build

WIDE, NARROW = 4, 2  # bytes of float32 and bfloat16
STATE = 4 * WIDE  # bytes of a parameter: weight, gradient, Adam's two moments
LOSS = 8 * WIDE  # bytes of a token beside an adaptive softmax: its losses and their gradients, sums, and its target
INDEX = 24  # bytes of the places, classes and targets of a token in a rarer band
MASK = 9  # bytes of a token's mask and place in the bands of an adaptive input
KERNELS = "native,attention=native_blocks"  # as FAIRSEQ_MEGA_PATHS
UNCHUNKED = 4096  # tokens of the longer sequence where attention has no chunks
GIB = 2**30


def parameters(model: nn.Module) -> int:
    """Number of a model's parameters; what two modules share counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


# Operations: two for each product that is added to a sum.


def operations(model: nn.Module, length: int) -> float:
    """Floating-point operations of a forward pass, for each position of sequences of a length.

    Every weight of a linear map multiplies every position, and attention every pair that it looks at, half of them in
    the mean where it is causal and skips the others; a moving average is three FFTs of twice the length. Norms and
    activations are left out, and the head of a classifier, which sees one vector of a sequence. A translation has as
    many positions of the source as of the target.
    """
    own, whole = 0.0, False
    for kind, formula in FORMULAS.items():
        if isinstance(model, kind):
            own += formula(model, length)
            whole = whole or kind in WHOLE
    return own if whole else own + sum(operations(part, length) for part in model._modules.values() if part is not None)


def _attention(width: int, length: int, chunk: int = -1, causal: bool = False) -> float:
    """Operations of queries and keys, and of weights and values, of this width together."""
    seen = length if chunk < 0 else min(chunk, length)
    return 2.0 * width * (seen / 2 if causal else seen)


def _gated_attention(module: Any, length: int) -> float:
    return _attention(module.output_proj.in_features + module.kappa.size(-1), length, module.chunk_size, module.causal)


def _convolution(module: Any, length: int) -> float:
    used = getattr(module, "ema_dim", 1) > 0
    return 15.0 * module.embed_dim * math.log2(max(2, 2 * length)) * used


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
    OutputTable: _output_table,
    AdaptiveInput: _adaptive_input,
    AdaptiveSoftmax: _adaptive_softmax,
    ClassifierHead: lambda module, length: 0.0,
    ImageHead: lambda module, length: 0.0,
}
WHOLE = (AdaptiveInput, AdaptiveSoftmax, ClassifierHead, ImageHead)  # whose formula is that of their parts, too


# Memory: what PyTorch's allocator would hold, read off a pass of tensors without storage.


class Step(NamedTuple):
    """Bytes that a training step of a language model holds where its backward pass begins."""

    state: int  # whatever the length
    token: int  # for each token of the sequence
    recomputed: int  # the same with ``--checkpoint-activations``
    parameters: int

    def context(self, memory: float) -> int:
        """Tokens of the longest sequence whose step fits into ``memory`` bytes; 0 where not even the state does."""
        return max(int((memory - self.state) // self.token), 0)


def training_step(
    options: Mapping[str, Any], symbols: int, bf16: bool = False, shares: Optional[Sequence[float]] = None
) -> Step:
    """Memory of a training step on one sequence, with the compiled kernels of a CPU; without them, with PyTorch's.

    At the beginning of the backward pass these are weights, gradients and Adam's two moments, and for each token what
    every layer keeps, its embedding, and of each symbol the logit and its gradient. The layers are run at two lengths,
    of whole chunks, in models of one and of two layers. With ``checkpoint_activations`` a layer keeps its input alone,
    until it runs again. Where symbols are few, the last layer's backward pass holds more: less than another layer.

    Args:
        options: of the model, as :func:`build` takes them; a language model of this package.
        symbols: V, in its dictionary.
        bf16: whether products are computed in bfloat16 (``--precision bf16``), of copies of the weights.
        shares: of a text in the bands of adaptive tables; None takes Zipf's law.

    Raises:
        ValueError: for a model that the measurement does not fit, or options as in :func:`build`.
    """
    decoder = language_model(options, symbols)
    adaptive = isinstance(decoder.embedding.tokens, AdaptiveInput), decoder.adaptive_softmax is not None
    if bf16 and any(adaptive):
        raise ValueError("--precision bf16: adaptive tables are in float32, give fp32")
    bare = {**options, "checkpoint_activations": False}
    first, second = (_bytes_of_token(language_model({**bare, "decoder_layers": n}, symbols), bf16) for n in (1, 2))
    tables = _adaptive_input_bytes(decoder.embedding.tokens, shares) if adaptive[0] else 0.0
    tables += _adaptive_softmax_bytes(decoder.adaptive_softmax, shares) if adaptive[1] else 0.0
    others, count = len(decoder.layers) - 1, parameters(decoder)
    kept, recomputed = (round(first + others * layer + tables) for layer in (second - first, WIDE * _width(decoder)))
    state = (STATE + (NARROW if bf16 else 0)) * count
    return Step(state, recomputed if decoder.checkpoint_activations else kept, recomputed, count)


def _width(decoder: LanguageModelDecoder) -> int:
    table, projection = decoder.embedding.tokens, decoder.embedding.projection
    return int(table.embedding_dim if projection is None else projection.out_features)


def language_model(options: Mapping[str, Any], symbols: int) -> LanguageModelDecoder:
    """The decoder of a language model on the meta device.

    Raises:
        ValueError: if it is none of this package, or as in :func:`build`.
    """
    decoder = getattr(build(options, symbols), "decoder", None)
    if not isinstance(decoder, LanguageModelDecoder):
        raise ValueError(f"{options['_name']} is no language model of this package")
    return decoder


class _Held(TorchDispatchMode):
    """Bytes of the storages that operators have made within this mode and somebody still holds."""

    def __init__(self) -> None:
        super().__init__()
        self.storages: Dict[StorageWeakRef, int] = {}
        self.watched = False
        self.most = 0  # that were held after an operator, of those that are watched

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for value in (result,) if isinstance(result, Tensor) else result if isinstance(result, (tuple, list)) else ():
            if isinstance(value, Tensor):
                storage = value.untyped_storage()
                self.storages[StorageWeakRef(storage)] = storage.nbytes()
        if self.watched:
            self.most = max(self.most, self.now())
        return result

    def now(self) -> int:
        self.storages = {storage: size for storage, size in self.storages.items() if not storage.expired()}
        return sum(self.storages.values())


class _ReachedLayers(Exception):
    """The backward pass has reached the layers."""


def _bytes_of_token(decoder: LanguageModelDecoder, bf16: bool) -> float:
    """Bytes that a step on one sequence holds for each token where the layers' backward pass begins."""
    short, long = 2 * decoder.chunk_size, 3 * decoder.chunk_size
    if decoder.chunk_size < 0:
        # Tables of rotations, which have the next power of two of positions, are one for all layers, but not here.
        long = 1 << max(4, min(UNCHUNKED, decoder.longest)).bit_length() - 1
        short = long * 3 // 4
    with FakeTensorMode(allow_non_fake_inputs=True), _kernels():
        decoder.to_empty(device="cpu").train()
        return (_held(decoder, long, bf16) - _held(decoder, short, bf16)) / (long - short)


def _held(decoder: LanguageModelDecoder, length: int, bf16: bool) -> int:
    """Bytes that a step on one sequence holds where the layers' backward pass begins; without adaptive tables."""
    tokens = torch.zeros(1, length, dtype=torch.long)

    def stop(grad: Tensor) -> None:
        raise _ReachedLayers

    def note(layer: nn.Module, inputs: Any, output: Any) -> None:
        output.hidden.register_hook(stop)

    hook = decoder.layers[-1].register_forward_hook(note)
    with _Held() as held:
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            if isinstance(decoder.embedding.tokens, AdaptiveInput):
                x = torch.zeros(1, length, _width(decoder)).requires_grad_()
            else:
                x = decoder.embedding(tokens)
            hidden = decoder.run_layers(x).hidden
            hook.remove()
            if decoder.adaptive_softmax is not None:
                return held.now() + LOSS * length
            losses = cross_entropy(decoder.output_layer(hidden)[0], tokens[0], ignore_index=decoder.padding_idx)
            loss = losses[0].sum()
            del x, hidden, losses  # a criterion returns the loss alone
        held.watched = True
        with contextlib.suppress(_ReachedLayers):
            loss.backward()
    return held.most


@contextlib.contextmanager
def _kernels() -> Iterator[None]:
    """Let operators take their compiled kernels, whatever processor this is, unless the environment asks for others."""
    given = os.environ.get(native.PATHS_VARIABLE)
    if native.PROBLEM is None:
        os.environ[native.PATHS_VARIABLE] = ",".join(filter(None, [KERNELS, given]))
    try:
        yield
    finally:
        if given is None:
            os.environ.pop(native.PATHS_VARIABLE, None)
        else:
            os.environ[native.PATHS_VARIABLE] = given


# Adaptive tables: which rows a step reads depends on its tokens, so that their memory is a formula. A token costs the
# head and its own band; the backward pass begins with all logits, and holds the gradients of one band at a time, the
# widest. Dropout within the tables is left out. Source: AdaptiveSoftmax and AdaptiveInput of fairseq.


@functools.lru_cache(maxsize=8)
def zipf_shares(ends: Tuple[int, ...]) -> List[float]:
    """Shares of a text in the bands of a dictionary that is sorted by frequency: word n comes in proportion to 1 / n.

    Args:
        ends: of the bands, the last of which is the number of symbols.
    """
    sums, total = [], 0.0
    for number in range(1, ends[-1] + 1):
        total += 1 / number
        if number in ends:
            sums.append(total)
    return [(high - low) / total for low, high in zip([0.0, *sums], sums)]


def _adaptive_softmax_bytes(softmax: AdaptiveSoftmax, given: Optional[Sequence[float]]) -> float:
    ends, d, shares = softmax.cutoff, softmax.input_dim, given or zipf_shares(tuple(softmax.cutoff))
    widths = [ends[0] + len(ends) - 1.0]
    widths += [share * (high - low) for share, low, high in zip(shares[1:], ends, ends[1:])]
    rare = [WIDE * (d + d // softmax.factor**band) + INDEX for band in range(1, len(ends))]
    return WIDE * (sum(widths) + max(widths)) + sum(share * size for share, size in zip(shares[1:], rare))


def _adaptive_input_bytes(table: AdaptiveInput, given: Optional[Sequence[float]]) -> float:
    shares = given or zipf_shares(tuple(table.cutoff))
    return MASK + sum(WIDE * share * band[0].embedding_dim for share, band in zip(shares, table.embeddings))
