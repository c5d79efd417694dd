"""Verify a conversion: convert every tensor back, and compare outputs where the original model can run.

A conversion changes names, axes of length one and the order of rows, but no value: converting back must restore every
tensor bit for bit. The package's tests compare the formulas of both codes. The only original that is run here is
transformers' former MegaForMaskedLM, on a small input. facebookresearch/mega is itself a package
named fairseq.
"""

import importlib
from contextlib import suppress
from typing import Any, Dict, List

import torch
from torch import Tensor

from fairseq_mega.compat.versions.image_libraries import import_torchvision

from .building import build_model
from .megalodon import TABLES
from .megalodon_names import FREQUENCIES, PRIORS
from .options import flat_options
from .tensors import OUR_BUFFERS, is_ignored

SEED = 1
PAD = 1  # in every dictionary of fairseq
LENGTH = 64  # maximum length of an input without chunks
LIMIT = 1e-4  # maximum difference after a correct conversion; transformers computes the moving average in float32
TRANSFORMERS = "pip install transformers==4.46.3, the last version with this model"


def verify(
    given: Dict[str, Any], back: Dict[str, Any], published: Dict[str, Any], ours: Dict[str, Any], where: str
) -> List[str]:
    """Compare both layouts of a checkpoint.

    Args:
        given: the checkpoint before the conversion.
        back: the converted checkpoint, converted back to the layout of ``given``.
        published: the model in the published layout: ``given`` or its conversion.
        ours: the same model in this package's layout.
        where: option and path of ``given``, for messages.

    Returns:
        Lines for the user: each comparison with its result.

    Raises:
        ValueError: if a weight is not finite, a tensor is not restored, or outputs differ.
    """
    damaged = [name for name, tensor in given["model"].items() if not bool(tensor.isfinite().all())]
    if damaged:
        raise ValueError(f"{where}: --verify: {_listed(damaged)} has values that are not finite: the file is damaged")
    changed = changed_tensors(given, back)
    if changed:
        raise ValueError(f"{where}: --verify: converting back would change {_listed(changed)}; nothing was written")
    lines = [
        f"names and shapes: the {len(weights_of(ours))} weights in this package's layout fit the options",
        f"way back: the {len(weights_of(given))} weights of the input are equal, bit for bit",
    ]
    reason = why_not_run(published)
    if reason:
        return [*lines, f"outputs: not compared, {reason}"]
    difference = largest_difference(published, ours)
    if not difference <= LIMIT:
        raise ValueError(
            f"{where}: --verify: the outputs differ by {difference:.2g}, at most {LIMIT:g} is expected; nothing was "
            f"written. Check that the options in the file belong to its tensors"
        )
    return [*lines, f"outputs: largest difference {difference:.2g} from transformers' on a small input"]


def changed_tensors(given: Dict[str, Any], back: Dict[str, Any]) -> List[str]:
    """Return the names of tensors that converting back changed, lost or added.

    Buffers without information and copies of shared tables may be missing on either side.
    """
    before, after = weights_of(given), weights_of(back)
    lost = [name for name in before if name not in after]
    made = [name for name, tensor in after.items() if name not in before and not _is_copy(tensor, after)]
    common = [name for name in before if name in after]
    return sorted([*lost, *made, *(name for name in common if not _same(before[name], after[name]))])


def weights_of(checkpoint: Dict[str, Any]) -> Dict[str, Tensor]:
    """Return the tensors without buffers, and without the rows of padding if padding has no probability."""
    model = {
        name: tensor
        for name, tensor in checkpoint["model"].items()
        if not (is_ignored(name) or OUR_BUFFERS.search(name) or name.endswith((*PRIORS, FREQUENCIES)))
    }
    if flat_options(checkpoint).get("no_padding_logit"):
        model.update({name: torch.cat([model[name][:PAD], model[name][PAD + 1 :]]) for name in TABLES if name in model})
    return model


def _is_copy(tensor: Tensor, model: Dict[str, Tensor]) -> bool:
    return sum(tensor is other for other in model.values()) > 1


def _same(tensor: Tensor, other: Tensor) -> bool:
    return tensor.dtype == other.dtype and torch.equal(tensor, other)


def _listed(names: List[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def why_not_run(published: Dict[str, Any]) -> str:
    """Return why the original of a published checkpoint is not run, or ""."""
    if "transformers" not in published:
        return "only transformers' models can be run here"
    try:
        with suppress(ImportError):
            import_torchvision()  # as transformers does where it is installed
        importlib.import_module("transformers").MegaForMaskedLM  # noqa: B018
    except (AttributeError, ImportError, RuntimeError) as error:
        return f"transformers' MegaForMaskedLM cannot be imported ({error}): {TRANSFORMERS}"
    return ""


@torch.no_grad()
def largest_difference(published: Dict[str, Any], ours: Dict[str, Any]) -> float:
    """Return the largest difference of log probabilities between transformers' model and ours, on random tokens."""
    transformers = importlib.import_module("transformers")
    config, model = published["transformers"], {name: _double(tensor) for name, tensor in ours["model"].items()}
    original = transformers.MegaForMaskedLM(transformers.MegaConfig(**config)).double().eval()
    original.load_state_dict(published["model"], strict=False)
    converted: Any = build_model(ours["args"], model)
    converted.load_state_dict(model)
    tokens = random_tokens(config)
    real = tokens.ne(PAD)
    want = original(input_ids=tokens, attention_mask=real.long()).logits.double().log_softmax(-1)
    got = converted.double().eval().get_normalized_probs(converted(tokens), log_probs=True)
    return (got - want)[real].abs().max().item()


def random_tokens(config: Dict[str, Any]) -> Tensor:
    """Return two random texts (2, L), the second half as long and padded; L is two chunks if the model has chunks."""
    length = 2 * config["chunk_size"] if config["use_chunking"] else min(LENGTH, config["max_positions"])
    tokens = torch.randint(4, config["vocab_size"], (2, length), generator=torch.Generator().manual_seed(SEED))
    tokens[1, length // 2 :] = PAD
    return tokens


def _double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor
