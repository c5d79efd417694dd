"""Checkpoints of transformers' former MegaForMaskedLM: their numbers, converted and back, and what is refused."""

from typing import Any, Dict

import pytest
import torch

from fairseq_mega.convert.building import build_model, check_complete
from fairseq_mega.convert.transformers_mega import convert_transformers, publish_transformers
from tests.convert.test_layouts import EXPECTED
from tests.convert.test_layouts import TRANSFORMERS as CASES
from tests.convert.test_layouts import transformers_checkpoint as published
from tests.support.plain.comparing import assert_same, largest_difference


@pytest.mark.parametrize("case", CASES)
def test_numbers_of_transformers(case: str) -> None:
    """Outputs are transformers', also without the padding of chunks, which its user adds and ours adds itself."""
    given = published(case)
    converted = convert_transformers(given, case)
    check_complete(converted["args"], converted["model"], case)
    model: Any = build_model(converted["args"], converted["model"])
    model.load_state_dict(converted["model"])
    tokens, want = torch.from_numpy(EXPECTED[f"{case}/tokens"]), torch.from_numpy(EXPECTED[f"{case}/log_probs"])
    real = tokens.ne(1)
    assert bool(real[:, 12:].sum() == 1)  # the longest text ends within a chunk
    for columns in (tokens.size(1), 13):
        found = model.eval().get_normalized_probs(model(tokens[:, :columns]), log_probs=True)
        error = (found - want[:, :columns])[real[:, :columns]].abs().max()
        assert error <= 1e-5, error


def test_biases_that_no_chunk_reads_come_back_where_they_were_kept() -> None:
    converted = convert_transformers(published("chunks"), "")
    name = "encoder.layers.0.attention.relative_bias.weight"
    assert converted["model"][name].numel() == 9 and converted["args"].encoder_chunk_size == 5
    shorter = publish_transformers({**converted, "extra_state": {}}, "")
    assert shorter["transformers"]["max_positions"] == 5
    assert largest_difference(shorter, convert_transformers(shorter, "")) < 1e-5
    unchunked = published("chunks", use_chunking=False)  # centred at chunk_size all the same
    converted = convert_transformers(unchunked, "")
    assert converted["args"].max_positions == 5 and converted["args"].encoder_chunk_size == -1
    assert_same(publish_transformers(converted, "")["model"], unchunked["model"])


@pytest.mark.parametrize(
    "changed",
    [
        *({"is_decoder": True}, {"normalization_type": "rmsnorm"}, {"normalize_before_ffn": False}),
        {"activation": "quick_gelu"},
        {"relative_positional_bias": "simple", "chunk_size": 25},
    ],
)
def test_what_no_model_here_has_is_refused(changed: Dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{list(changed)[-1]} {list(changed.values())[-1]}"):
        convert_transformers(published("rotary", **changed), "x")


def test_what_transformers_have_not_is_refused() -> None:
    converted = convert_transformers(published("rotary"), "x")
    vars(converted["args"]).update(no_final_norm=False, no_scale_embedding=False)
    with pytest.raises(ValueError, match="--no-final-norm.*--no-scale-embedding"):
        publish_transformers(converted, "x")
    given = published("rotary")
    given["model"]["mlm_head.weight"] = given["model"]["mlm_head.weight"] + 1
    with pytest.raises(ValueError, match="mlm_head.weight differs from word_embeddings.weight"):
        convert_transformers(given, "x")
