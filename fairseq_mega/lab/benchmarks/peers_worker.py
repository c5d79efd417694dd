"""Training steps of a language model in a separate process.

``PYTHON peers_worker.py SETTINGS`` runs in the environment of the model's package, where fairseq_mega need not be
installed: this file imports the standard library and the package alone. ``SETTINGS`` is a JSON object: ``model``, a key
of ``BUILDERS``, ``width``, ``layers``, ``chunk``, ``symbols``, ``batch``, ``length``, ``threads`` and ``repeat``.

The output is a JSON object: the model's ``parameters``, the ``versions`` of its packages, the ``losses`` of the
warm-up, the median ``seconds`` of a forward and backward pass, and ``memory_mib``, the peak of all passes on top of
model and compiled program; or ``skipped``, the reason why the model cannot be built.
"""

import ctypes
import importlib.metadata
import json
import os
import random
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

Sizes = Dict[str, Any]
WARM_UP = 2  # steps, each with a descent
DESCENT = 1e-3  # fraction by which the loss should fall in a step of the warm-up


class Training(NamedTuple):
    """A model that is ready to be trained on a batch."""

    parameters: int
    # Returns the loss and its gradients as soon as both are computed.
    gradients: Callable[[], Tuple[float, Sequence[Any]]]
    # Subtracts these gradients times a number from the parameters.
    descend: Callable[[Sequence[Any], float], None]
    packages: List[str]  # packages whose versions are recorded


def tokens_of(sizes: Sizes) -> List[List[int]]:
    """Return random tokens from 4 on, B lists of L + 1, the same in every environment."""
    draw = random.Random(1).randrange
    return [[draw(4, sizes["symbols"]) for _ in range(sizes["length"] + 1)] for _ in range(sizes["batch"])]


def ours(sizes: Sizes) -> Training:
    """MEGALODON of this package."""
    import torch

    from fairseq_mega.compat.processes.cpu_process import configure_process
    from fairseq_mega.lab.benchmarks import models

    configure_process()  # as fairseq-mega-train does
    torch.set_num_threads(sizes["threads"])
    built = {key: sizes[key] for key in ("width", "layers", "chunk")}
    model = models.build("megalodon", vocab_size=sizes["symbols"], longest=sizes["length"], tied=False, **built).train()
    tokens, parameters = torch.tensor(tokens_of(sizes)), list(model.parameters())

    def gradients_of(tokens: Any) -> Tuple[float, Sequence[Any]]:
        loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1])[0].flatten(0, 1), tokens[:, 1:].flatten())
        return float(loss.detach()), torch.autograd.grad(loss, parameters)

    def descend(gradients: Sequence[Any], factor: float) -> None:
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients):
                parameter.sub_(gradient, alpha=factor)

    gradients_of(tokens[:, : min(sizes["chunk"], sizes["length"]) + 1])  # the one-time work of torch
    count = sum(parameter.numel() for parameter in parameters)
    return Training(count, lambda: gradients_of(tokens), descend, ["torch", "fairseq-mega"])


def megalodon_jax(sizes: Sizes) -> Training:
    """MEGALODON of megalodon-jax: one program of XLA, compiled before it runs."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import equinox
    import jax
    import jax.numpy as jnp
    from megalodon_jax import MegalodonConfig, MegalodonForCausalLM

    width = sizes["width"]
    config = MegalodonConfig(
        vocab_size=sizes["symbols"],
        model_dim=width,
        num_layers=sizes["layers"],
        z_dim=width // 2,
        value_dim=2 * width,
        ffn_hidden_dim=5 * width // 2,
        chunk_size=sizes["chunk"],
        norm_num_groups=min(32, width // 4),
    )
    arrays, rest = equinox.partition(MegalodonForCausalLM(config, key=jax.random.PRNGKey(0)), equinox.is_inexact_array)
    tokens, (leaves, structure) = jnp.array(tokens_of(sizes)), jax.tree.flatten(arrays)

    def loss_of(leaves: Any, tokens: Any) -> Any:
        logits, _ = equinox.combine(jax.tree.unflatten(structure, leaves), rest)(tokens[:, :-1])
        likelihoods = jax.nn.log_softmax(logits, axis=-1)
        return -jnp.take_along_axis(likelihoods, tokens[:, 1:, None], axis=-1).mean()

    compiled = jax.jit(jax.value_and_grad(loss_of)).lower(leaves, tokens).compile()

    def gradients() -> Tuple[float, Sequence[Any]]:
        loss, found = jax.block_until_ready(compiled(leaves, tokens))
        return float(loss), found

    def descend(gradients: Sequence[Any], factor: float) -> None:
        leaves[:] = jax.block_until_ready([leaf - factor * gradient for leaf, gradient in zip(leaves, gradients)])

    count = sum(leaf.size for leaf in leaves)
    return Training(count, gradients, descend, ["megalodon-jax", "jax", "jaxlib", "equinox"])


BUILDERS: Dict[str, Callable[[Sizes], Training]] = {"megalodon": ours, "megalodon-jax": megalodon_jax}


def resident_mib(field: str) -> float:
    """Return this process's resident memory in MiB: the present VmRSS or the peak VmHWM (Linux)."""
    found = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found, f"/proc/self/status has no {field}; measuring memory requires Linux"
    return int(found.group(1)) / 2**10


def warm_up(training: Training) -> List[float]:
    """Take steps down the gradients, and return the loss before each step and after the last.

    Raises:
        ValueError: unless every loss falls by as much as its gradients predict, within a fifth.
    """
    losses: List[float] = []
    for _ in range(WARM_UP):
        loss, gradients = training.gradients()
        losses.append(loss)
        norm = sum(float((gradient * gradient).sum()) for gradient in gradients)
        training.descend(gradients, DESCENT * loss / norm)
        del gradients
    losses.append(training.gradients()[0])
    falls = [(before - after) / (DESCENT * before) for before, after in zip(losses, losses[1:])]
    if not all(abs(fall - 1.0) < 0.2 for fall in falls):
        raise ValueError(f"the losses {losses} do not fall as the gradients predict, but by {falls} of the prediction")
    return losses


def measure(sizes: Sizes) -> Dict[str, Any]:
    """Build a model, take the steps of the warm-up, and measure its passes."""
    try:
        training = BUILDERS[sizes["model"]](sizes)
    except ModuleNotFoundError as error:
        return {"skipped": f"{sys.executable} has no module {error.name}"}
    ctypes.CDLL(None).malloc_trim(0)  # memory freed after building and compiling
    before, losses, seconds = resident_mib("VmRSS"), warm_up(training), []
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak
    for _ in range(sizes["repeat"]):
        start = time.perf_counter()
        training.gradients()
        seconds.append(time.perf_counter() - start)
    versions = {name: importlib.metadata.version(name) for name in training.packages}
    return {
        "parameters": training.parameters,
        "seconds": statistics.median(seconds),
        "memory_mib": resident_mib("VmHWM") - before,
        "losses": losses,
        "versions": {**versions, "python": sys.version.split()[0]},
    }


def main() -> None:
    sizes = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of other packages goes to the messages
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: sizes["threads"]])  # XLA has no option for its threads
    json.dump(measure(sizes), answers)
    answers.close()


if __name__ == "__main__":
    main()
