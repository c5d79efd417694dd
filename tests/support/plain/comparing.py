"""Both layouts of a checkpoint on the same random input: this package's model, and a plain transcription of theirs."""

import re
from argparse import Namespace
from functools import partial
from typing import Any, Dict, List

import torch
from torch import Tensor

from fairseq_mega.convert import command
from fairseq_mega.convert.building import build_model
from fairseq_mega.convert.megalodon import SPECIAL, published_rows
from fairseq_mega.convert.options import IMAGES, MASKED, kind_of
from tests.support.plain import images, megalodon, models, transformers

SEED = 1
LENGTH = 67  # of the inputs at most, but for chunks of numbers that are longer


def run(*arguments: object) -> int:
    """Run fairseq-mega-convert in this process."""
    return command.main([str(argument) for argument in arguments])


def assert_same(got: Dict[str, Tensor], want: Dict[str, Tensor]) -> None:
    """Compare tensors by name, bit for bit."""
    assert set(got) == set(want)
    for name, tensor in want.items():
        assert (got[name].shape, got[name].dtype) == (tensor.shape, tensor.dtype), name
        assert torch.equal(got[name], tensor), name


def our_ids(token_ids: Tensor) -> Tensor:
    """Return fairseq's token ids, from sentencepiece's; any shape."""
    first = torch.tensor([3, 0, 2], device=token_ids.device)  # of unknown, begin, end
    return torch.where(token_ids < SPECIAL, first[token_ids.clamp(max=SPECIAL - 1)], token_ids + 1)


@torch.no_grad()
def largest_difference(published: Dict[str, Any], converted: Dict[str, Any]) -> float:
    """Largest absolute difference of the two forms of a model, in float64, over log probabilities or logits.

    Args:
        published: options (``args``, ``config`` of MEGALODON, or ``transformers``) and tensors (``model``) in that
            layout.
        converted: the same in ours.
    """
    options: Namespace = converted["args"]
    model = {name: _double(tensor) for name, tensor in converted["model"].items()}
    weights = {name: _double(tensor) for name, tensor in published["model"].items()}
    ours = build_model(options, model)
    ours.load_state_dict(model)
    ours.double().eval()
    kind, inputs = kind_of(model), random_inputs(ours, model, vars(options))
    if "config" in published:
        return _difference_of_megalodon(ours, weights, published)
    if kind == MASKED:
        published_model: Any = partial(transformers.masked_language_model, weights, published["transformers"])
    else:
        published_model = _of_mega(published, weights, kind)
    return (run_ours(ours, kind, inputs) - published_model(*inputs)).abs().max().item()


def _difference_of_megalodon(ours: Any, weights: Dict[str, Tensor], published: Dict[str, Any]) -> float:
    """Return that of the log probabilities of the published tokens, all of which are in the text."""
    config, moved = published["config"]["model"], "symbols" not in published
    symbols, length = weights["embed.weight"].size(0), 2 * config["chunk_size"] + 3
    draw = torch.Generator().manual_seed(SEED)
    tokens = torch.randint(0 if moved else 4, symbols, (2, min(length, LENGTH)), generator=draw)
    tokens[0, :3] = torch.arange(3) if moved else 2
    got = run_ours(ours, "language model", [our_ids(tokens) if moved else tokens])
    got = published_rows(got.movedim(-1, 0)).movedim(0, -1) if moved else got
    return (got - megalodon.language_model(weights, config, tokens)).abs().max().item()


def _of_mega(published: Dict[str, Any], weights: Dict[str, Tensor], kind: str) -> Any:
    """The published model as a function of the inputs."""
    args = vars(published.get("args") or Namespace())
    return {
        "classifier": lambda *documents: models.classifier(weights, args, list(documents)),
        IMAGES: partial(images.image_classifier, weights),
        "language model": partial(models.language_model, weights, args),
        "translator": partial(models.translator, weights, args),
    }[kind]


def random_inputs(ours: Any, model: Dict[str, Tensor], options: Dict[str, Any]) -> List[Tensor]:
    """Images, documents of a classifier, tokens of a language model, or source (padded on the left) and target."""
    draw = torch.Generator().manual_seed(SEED)
    kind, length = kind_of(model), _length(options)
    if kind == "language model":
        return [_tokens(draw, len(ours.decoder.dictionary), [length, length])]
    if kind == "translator":
        chunk = int(options.get("encoder_chunk_size") or -1)
        # The published chunks begin where a batch does, ours where a sentence does: the same after whole chunks.
        shorter = length - chunk if 0 < chunk < length else length // 2
        source = _tokens(draw, len(ours.encoder.dictionary), [length, shorter], left=True)
        return [source, _tokens(draw, len(ours.decoder.dictionary), [length, length])]
    if kind == IMAGES:
        return [torch.randn(2, 3, ours.image_size, ours.image_size, generator=draw, dtype=torch.float64)]
    table = model["encoder.embedding.tokens.weight"]
    if kind == MASKED:
        return [_tokens(draw, table.size(0), [length, length // 2])]
    if table.dim() == 2:
        return [_tokens(draw, table.size(0), [length, length // 2]) for _ in range(ours.documents)]
    return [torch.rand(2, _length(options, whole_chunks=True), generator=draw, dtype=torch.float64)]


def run_ours(ours: Any, kind: str, inputs: List[Tensor]) -> Tensor:
    """Logits of a classifier, or log probabilities (B, L, V)."""
    if kind == IMAGES:
        return ours(*inputs)
    if kind == "classifier":
        return ours(inputs[0], src1_tokens=inputs[1] if len(inputs) == 2 else None)
    if kind == MASKED:
        padding = inputs[0].eq(models.PAD).unsqueeze(-1)
        return ours.get_normalized_probs(ours(*inputs), log_probs=True).masked_fill(padding, 0)
    output = ours(*inputs) if kind == "language model" else ours(inputs[0], None, inputs[1])
    return ours.get_normalized_probs(output, log_probs=True)


def _tokens(draw: Any, symbols: int, lengths: List[int], left: bool = False) -> Tensor:
    """Random texts of these lengths, padded on one side."""
    drawn = torch.randint(4, max(symbols, 5), (len(lengths), max(lengths)), generator=draw)
    for row, real in enumerate(lengths):
        drawn[row, slice(0, max(lengths) - real) if left else slice(real, None)] = models.PAD
    return drawn


def _length(options: Dict[str, Any], whole_chunks: bool = False) -> int:
    """A length of at most LENGTH that covers several chunks where they are short; numbers fill their chunks."""
    chunks = [value for name, value in options.items() if name.endswith("chunk_size") and (value or -1) > 0]
    known = [value for name, value in options.items() if re.fullmatch("max_.*positions", name) and value]
    longest = min([LENGTH, *known])
    if not chunks:
        return longest
    if whole_chunks:
        return chunks[0] * max(longest // chunks[0], 1)
    return min(2 * chunks[0] + 3, longest)


def _double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
