"""Log probabilities of transformers' former MegaForMaskedLM, for tests/convert/test_transformers_conversion.py.

    python3.11 -m venv /tmp/transformers && /tmp/transformers/bin/pip install transformers==4.40.2 torch "numpy<2"
    /tmp/transformers/bin/python tests/goldens/make_transformers.py tests/goldens/transformers.expected.npz

The parameters, sorted by name, are filled with 0.4 sin(1), 0.4 sin(2), ... in row-major order, the i-th one (from 0)
times 1 + i / 100, running variances with the squares of that plus one half; a tied output keeps the values of the
embeddings. The file holds for each case "configuration" (what is not transformers' default) and "shapes" as JSON,
"tokens" and "log_probs"; inputs of a model with chunks are padded to whole ones with token 1.
"""

import json
import sys
from typing import Any, Dict

import numpy as np
import torch
from transformers import MegaConfig, MegaForMaskedLM

SIZES = {"hidden_size": 8, "intermediate_size": 12, "shared_representation_size": 4, "ema_projection_size": 3}
SIZES = {**SIZES, "nffn_hidden_size": 10, "num_hidden_layers": 2, "vocab_size": 24, "max_positions": 24}
CASES: Dict[str, Dict[str, Any]] = {
    "rotary": {"add_token_type_embeddings": True},
    "chunks": {
        "use_chunking": True,
        "chunk_size": 5,
        "relative_positional_bias": "simple",
        "attention_activation": "laplace",
        "normalization_type": "layernorm",
        "normalize_before_mega": False,
        "normalize_before_ffn": False,
        "add_lm_hidden_dense_layer": False,
        "truncation": 6,
    },
    "untied": {
        "tie_word_embeddings": False,
        "relative_positional_bias": "simple",
        "attention_activation": "relu2",
        "normalization_type": "batchnorm",
        "activation": "gelu",
        "use_normalized_ffn": False,
    },
    "chunks, softmax": {"use_chunking": True, "chunk_size": 4, "add_lm_hidden_dense_layer": False},
}
LENGTHS = (13, 6, 1)


def fill(model: MegaForMaskedLM) -> None:
    state = model.state_dict()
    for i, name in enumerate(sorted(state)):
        tensor = state[name]
        if (name == "mlm_head.weight" and model.config.tie_word_embeddings) or not tensor.is_floating_point():
            continue
        wave = np.sin(np.arange(1.0, tensor.numel() + 1)).reshape(tuple(tensor.shape)) * 0.4 * (1 + i / 100)
        tensor.copy_(torch.from_numpy(wave**2 + 0.5 if name.endswith("running_var") else wave))


@torch.no_grad()
def main() -> None:
    found: Dict[str, Any] = {}
    for case, given in CASES.items():
        config = {**SIZES, **given}
        model = MegaForMaskedLM(MegaConfig(**config)).eval()
        fill(model)
        chunk = config["chunk_size"] if config.get("use_chunking") else 1
        tokens = np.ones((len(LENGTHS), -(-LENGTHS[0] // chunk) * chunk), dtype=np.int64)
        for row, length in enumerate(LENGTHS):
            tokens[row, :length] = (np.arange(length) * (7 + row) + 4) % 20 + 4
        mask = torch.from_numpy((tokens != 1).astype(np.int64))
        logits = model(input_ids=torch.from_numpy(tokens), attention_mask=mask).logits
        found[f"{case}/configuration"] = json.dumps(config)
        shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        found[f"{case}/shapes"] = json.dumps(shapes)
        found[f"{case}/tokens"] = tokens
        found[f"{case}/log_probs"] = logits.log_softmax(-1).numpy()
    np.savez_compressed(sys.argv[1], **found)


if __name__ == "__main__":
    main()
