"""Contexts: the state of language models after a text, in memory and in a file."""

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_mega.compat.files import safetensors_files
from fairseq_mega.compat.files.safe_globals import UnreadableFile
from fairseq_mega.modules.state import StreamState, named_tensors, with_named_tensors

KIND = "fairseq_mega context 1"
PIECE = 4096  # approximate number of tokens that one call reads
REMEDIES = {  # for each part of a context's origin, what to do if it differs
    "options": "give the options that it was read with (--test-chunk-size, --model-overrides)",
    "dictionary": "give the data folder that it was read with",
    "weights": "give the checkpoint and precision that it was read with (--fp16, --decode-weights)",
}


class ContextError(ValueError):
    """Error for a file that holds no context, or the context of another model."""


class Context(NamedTuple):
    """State of language models after a text; continuing a text does not change its context."""

    states: Tuple[Optional[StreamState], ...]  # of each model, one row, after all tokens but the last; None: no token
    last: int  # token that is read next
    unread: str = ""  # end of the text, whose tokens depend on the text that follows


@torch.no_grad()
def read_tokens(
    models: Sequence[Any], tokens: Sequence[int], states: Sequence[Optional[StreamState]]
) -> Tuple[List[Tensor], Tuple[StreamState, ...]]:
    """Read tokens that follow those of the states, whole chunks in a call.

    Args:
        models: language models of this package.
        tokens: at least one token.
        states: state of each model, with one row; None at the beginning of a text.

    Returns:
        Log probabilities (1, V) of the next token by each model, and the new states.
    """
    found: List[Tensor] = []
    after: List[StreamState] = []
    for model, state in zip(models, states):
        model.eval()
        chunk = max(model.decoder.chunk_size, 1)
        unread = torch.tensor([list(tokens)], device=device_of(model))
        for piece in unread.split(max(PIECE // chunk, 1) * chunk, dim=1):
            log_probs, state = model.decoder.advance(piece, state)
        assert state is not None
        found.append(log_probs)
        after.append(state)
    return found, tuple(after)


def device_of(model: Any) -> torch.device:
    """Return the device of a model's weights."""
    return next(model.parameters()).device


def check_name(path: Path) -> None:
    """Raise a ValueError unless a path names a file of safetensors."""
    if not safetensors_files.names_safetensors(path):
        raise ValueError(f"{path}: a context is a file of safetensors; give a name that ends with .safetensors")


def save_context(context: Context, path: Path, models: Sequence[Any], dictionary: Any) -> None:
    """Write a context and digests of its origin atomically: the file is complete or does not exist.

    Args:
        context: context of the models.
        path: file that ends with .safetensors.
        models: models that read the text.
        dictionary: dictionary of the tokens.

    Raises:
        OSError: if the file cannot be written.
        ValueError: for another suffix.
    """
    check_name(path)
    tensors = {name: _plain(tensor) for name, tensor in named_tensors(context.states).items()}
    steps = [0 if state is None else state.step for state in context.states]
    about = json.dumps(
        {
            "steps": steps,
            "last": context.last,
            "unread": context.unread,
            "belongs_to": _origin(models, dictionary),
        }
    )
    texts = {"format": "pt", "kind": KIND, "context": about, "sha256": digest(tensors, about)}
    safetensors_files.write_tensors(tensors, path, texts)


def load_context(path: Path, models: Sequence[Any], dictionary: Any) -> Context:
    """Read a context from a file, to the device of the models.

    Args:
        path: file of :func:`save_context`.
        models: the same number of models with the same weights as read the text.
        dictionary: dictionary of the tokens.

    Raises:
        OSError: if the file cannot be opened.
        ContextError: if the file is damaged, holds no context, or belongs to other weights, options or dictionaries.
    """
    try:
        texts = safetensors_files.read_texts(path)
        tensors = safetensors_files.read_tensors(path)
    except UnreadableFile as error:
        raise ContextError(f"{error}: give a file of --save-context") from error
    if texts.get("kind") != KIND:
        raise ContextError(f"{path} holds no context for this version: give a file of --save-context")
    if texts["sha256"] != digest(tensors, texts["context"]):
        raise ContextError(f"{path} is damaged: copy it again, or read the text again")
    about = json.loads(texts["context"])
    expected = _origin(models, dictionary)
    for part, remedy in REMEDIES.items():
        found = about["belongs_to"][part]
        if found != expected[part]:
            details = "" if part != "options" else f" ({found}; the model has {expected[part]})"
            raise ContextError(f"{path} was read with other {part}{details}: {remedy}, or read the text again")
    states: List[Optional[StreamState]] = []
    for index, (model, step) in enumerate(zip(models, about["steps"])):
        own = {name.split(".", 1)[1]: tensor for name, tensor in tensors.items() if name.startswith(f"{index}.")}
        states.append(_state(model, step, about["last"], own) if step else None)
    return Context(tuple(states), about["last"], about["unread"])


def digest(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """Return the SHA-256 of a text and of names, types, shapes and contents of tensors on any device."""
    found = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
    for name, tensor in sorted(tensors.items()):
        found.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return found.hexdigest()


def _origin(models: Sequence[Any], dictionary: Any) -> Dict[str, str]:
    """Return the origin of a context: a text for each key of REMEDIES."""
    return {
        "options": ", ".join(map(_options_of, models)),
        "dictionary": digest({}, "\n".join(dictionary.symbols)),
        "weights": " ".join(digest(model.state_dict()) for model in models),
    }


def _options_of(model: Any) -> str:
    """Return the options that affect the outputs of a model but not its weights."""
    decoder = model.decoder
    options = {**decoder.settings, "decoder_chunk_size": decoder.chunk_size}
    if hasattr(decoder, "window"):
        options["statistics_window"] = decoder.window
    return ", ".join(f"--{name.replace('_', '-')} {value}" for name, value in sorted(options.items()))


def _plain(tensor: Tensor) -> Tensor:
    """Return a copy on the CPU, with complex numbers as pairs of real numbers."""
    tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)


def _state(model: Any, step: int, token: int, tensors: Mapping[str, Tensor]) -> StreamState:
    """Return the state of a model after ``step`` tokens; reading one token supplies the structure."""
    _, (like,) = read_tokens([model], [token], [None])
    # Copies: a view of the file may not be aligned to 16 bytes, and any() of complex128 crashes there.
    placed = {name: tensor.to(device_of(model), copy=True) for name, tensor in tensors.items()}
    for name, tensor in named_tensors(like).items():
        if tensor.is_complex():
            placed[name] = torch.view_as_complex(placed[name])
        placed[name] = placed[name].to(tensor.dtype)  # under autocast keys and values have another dtype
    return with_named_tensors(like, placed)._replace(step=step)
