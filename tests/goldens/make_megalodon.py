"""Logits and gradients of an independent implementation of MEGALODON, for tests/models/test_megalodon_independent.py.

    python3.11 -m venv /tmp/independent && /tmp/independent/bin/pip install megalodon-jax==0.2.2
    /tmp/independent/bin/python tests/goldens/make_megalodon.py tests/goldens/megalodon.independent.npz

Every parameter is filled with 0.4 sin(1), 0.4 sin(2), ... in row-major order, the i-th one (from 0) times 1 + i / 100.
The gradients are those of the sum of the logits, each times the cosine of its place.
"""

import sys
from typing import Any

import equinox
import jax
import jax.numpy as jnp
import numpy as np
from megalodon_jax import MegalodonConfig, MegalodonForCausalLM

SHAPE = {"model_dim": 8, "num_layers": 2, "num_heads": 2, "z_dim": 8, "value_dim": 12, "ffn_hidden_dim": 10}
CONFIG = MegalodonConfig(
    **SHAPE, vocab_size=11, cema_ndim=3, chunk_size=4, norm_num_groups=2, swiglu=True, rescale_nffn=True, scale_emb=True
)
TOKENS = np.array([[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [8, 9, 7, 9, 3, 2, 3, 8, 4, 6, 2]])


def main() -> None:
    jax.config.update("jax_default_matmul_precision", "highest")
    model = MegalodonForCausalLM(CONFIG, key=jax.random.PRNGKey(0))
    arrays, rest = equinox.partition(model, equinox.is_inexact_array)
    paths, tree = jax.tree_util.tree_flatten_with_path(arrays)
    names = [jax.tree_util.keystr(path).lstrip(".") for path, _ in paths]
    filled = [
        jnp.asarray(0.4 * (1 + i / 100) * np.sin(np.arange(1.0, leaf.size + 1)).reshape(leaf.shape), leaf.dtype)
        for i, (_, leaf) in enumerate(paths)
    ]

    def logits_of(leaves: list) -> jax.Array:
        model = equinox.combine(jax.tree_util.tree_unflatten(tree, leaves), rest)
        return model(jnp.asarray(TOKENS))[0]

    logits = logits_of(filled)
    weights = jnp.cos(jnp.arange(1.0, logits.size + 1)).reshape(logits.shape)
    gradients = jax.grad(lambda leaves: (logits_of(leaves) * weights).sum())(filled)
    found: Any = {name: np.asarray(value) for name, value in zip(["logits", *names], [logits, *gradients])}
    np.savez_compressed(sys.argv[1], **found)
    print(f"{len(names)} gradients and logits {logits.shape}")


main()
