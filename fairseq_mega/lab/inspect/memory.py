"""The longest context of a language model's training step in a memory, see :mod:`fairseq_mega.models.cost`."""

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional

from fairseq.models import ARCH_MODEL_NAME_REGISTRY

from fairseq_mega.compat.files.loading import load_checkpoint
from fairseq_mega.convert.options import flat_options
from fairseq_mega.lab.inspect.recipe_models import vocab_size_of_preset
from fairseq_mega.models.cost import GIB, Step, training_step
from fairseq_mega.ops.common import native

MODELS = ("mega_lm", "megalodon_lm", "llama_lm")
USUAL_SIZE = 32000


class Needs(NamedTuple):
    """The costs of a training step of a model, and the size of its dictionary."""

    step: Step
    vocab_size: int


def model_of(name: str, vocab_size: Optional[int] = None, bf16: bool = False) -> Needs:
    """Return the costs of the model of a checkpoint or of an architecture.

    Args:
        name: of the file, or of the architecture.
        vocab_size: of the architecture; None for those of its recipes.
        bf16: whether the training is in bfloat16.

    Raises:
        OSError: if neither exists.
        ValueError: if it is not a language model of this package with a plain table.
    """
    if ARCH_MODEL_NAME_REGISTRY.get(name) in MODELS:
        options: Dict[str, Any] = {"_name": name}
        vocab_size = vocab_size or vocab_size_of_preset(name) or USUAL_SIZE
    else:
        checkpoint = load_checkpoint(Path(name))
        options, tensors = flat_options(checkpoint), checkpoint["model"]
        table = tensors.get("decoder.embedding.tokens.weight")
        if table is None or any(tensor.startswith("encoder.") for tensor in tensors):
            raise ValueError(
                f"{name}: --memory requires a language model with a plain table; for adaptive tables give the name of "
                "its --arch and --symbols N instead"
            )
        kinds = {"theta": "megalodon_lm", "omega": "mega_lm"}  # parameters of the moving average
        found = (kind for part, kind in kinds.items() if any(tensor.endswith(f".ema.{part}") for tensor in tensors))
        options, vocab_size = {**options, "_name": next(found, "llama_lm")}, table.size(0)
    return Needs(training_step(options, vocab_size, bf16), vocab_size)


def lines_of(name: str, memories: List[float], vocab_size: Optional[int] = None, bf16: bool = False) -> List[str]:
    """Return the contexts of a model for memories in GiB, as lines of text.

    Raises:
        OSError, ValueError: as :func:`model_of`.
    """
    step, vocab_size = model_of(name, vocab_size, bf16)
    state, token = f"{step.state / GIB:.2f} GiB of training state", f"{step.token / 1024:,.1f} KiB for each token"
    first = f"{step.parameters:,} parameters with a vocabulary of {vocab_size:,} tokens: {state}, {token}"
    if native.PROBLEM is not None:
        first += f"\nmeasured without the compiled kernels, which need less memory: {native.PROBLEM}; {native.REMEDY}"
    return [first, *(f"{memory:g} GiB: {step.context(memory * GIB):,} tokens" for memory in memories)]
