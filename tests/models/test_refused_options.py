"""Options that no model can have: an error that begins with the flag and the value."""

from typing import Any, Callable, Dict, List, Tuple

import pytest

from tests.support import tiny_classifier, tiny_images, tiny_llama, tiny_lm, tiny_masked_lm, tiny_mega, tiny_megalodon
from tests.support.tiny_mega import dictionary, task

CUTOFF = {"adaptive_softmax_cutoff": "6,13", "adaptive_softmax_factor": 2.0}
TIED = {"adaptive_input": True, "adaptive_input_factor": 2.0, "tie_adaptive_weights": True, "tie_adaptive_proj": True}
APART = {"share_decoder_input_output_embed": False}
OTHERS = {"share_all_embeddings": True, "task": task(target=dictionary(9))}
# A value of each option that is not in range; the error begins with the flag and the value.
OUT_OF_RANGE: Dict[str, Dict[str, Any]] = {
    "mega": {
        "encoder_layers": 0,
        "encoder_chunk_size": 0,
        "decoder_chunk_size": 0,
        "encoder_n_dim": -1,
        "max_source_positions": 0,
        "dropout": 1.0,
        "late_dropout": -1,
    },
    "mega_lm": {"decoder_layers": 0},
    "megalodon_lm": {"decoder_n_dim": 0, "rope_base": 0.5, "statistics_window": -1, "residual_hops": 3},
    "llama_lm": {"decoder_ffn_embed_dim": 0},
    "mega_masked_lm": {"token_types": -1},
    "mega_lra": {"sentence_class_num": 1, "input_type": "image"},
    "megalodon_lra": {"encoder_layers": 0},
    "s4d_lra": {"encoder_n_dim": 5, "least_step": 0.2, "state_space_rate": 0.0},
    "transformer_lra": {"encoder_attention_heads": 3, "max_positions": 0},
    "mega_image": {"image_class_num": 1, "drop_path": 1.0},
    "megalodon_image": {"encoder_layers": 0},
    "vit_image": {"encoder_layers": 0},
}
# Options that exclude each other, and the beginning of the error.
EXCLUSIVE: Dict[str, List[Tuple[Dict[str, Any], str]]] = {
    "mega": [
        (OTHERS, "--share-all-embeddings"),
        ({"normalize_before": True, "normalize_embedding": True}, "--normalize-embedding"),
        ({"rel_pos_bias": "rotary", "encoder_z_dim": 5}, "--encoder-z-dim 5"),
        ({**CUTOFF, "share_decoder_input_output_embed": True}, "--share-decoder-input-output-embed"),
        ({**CUTOFF, "tie_adaptive_weights": True}, "--tie-adaptive-weights"),
        ({**CUTOFF, **TIED, "share_all_embeddings": True}, "--share-all-embeddings"),
        ({**CUTOFF, **TIED, "decoder_embed_path": "file"}, "--decoder-embed-path"),
    ],
    "mega_lm": [
        ({**APART, "adaptive_input": True}, "--adaptive-input"),
        ({**tiny_lm.ADAPTIVE, "tie_adaptive_weights": False}, "--tie-adaptive-proj"),
        ({**tiny_lm.ADAPTIVE, "adaptive_input_factor": 4.0}, ".*--adaptive-input-factor"),
    ],
    "megalodon_lm": [
        ({"decoder_attention_heads": 3}, "--decoder-z-dim 8: .*--decoder-attention-heads"),
        ({"norm_num_groups": 3}, "--decoder-embed-dim 8: .*--norm-num-groups"),
        ({"statistics_window": 6, "decoder_chunk_size": -1}, "--statistics-window 6"),
    ],
    "llama_lm": [({"decoder_attention_heads": 3}, "--decoder-embed-dim 8: .*--decoder-attention-heads")],
    "mega_lra": [
        ({"kind": "image", "sen_rep_type": "cls"}, "--sen-rep-type cls"),
        ({"act_dropout": 1.0}, ".*dropout 1.0"),
    ],
    "mega_image": [({"image_size": 13}, "--patch-size 4 .*--image-size 13")],
    "vit_image": [({"patch_size": 5}, "--patch-size 5 .*--image-size 12")],
}
BUILD: Dict[str, Callable[..., Any]] = {
    "mega": tiny_mega.build,
    "mega_lm": tiny_lm.build,
    "megalodon_lm": tiny_megalodon.build,
    "llama_lm": tiny_llama.build,
    "mega_masked_lm": tiny_masked_lm.build,
    **dict.fromkeys(("mega_lra", "megalodon_lra", "s4d_lra", "transformer_lra"), tiny_classifier.build),
    **dict.fromkeys(("mega_image", "megalodon_image", "vit_image"), tiny_images.build),
}


def flag(option: str) -> str:
    return "--" + option.replace("_", "-")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=tiny_images.needs_timm if name == "vit_image" else ()) for name in BUILD]
)
def test_the_flag_is_named(name: str) -> None:
    arch = {"arch": name} if BUILD[name] in (tiny_classifier.build, tiny_images.build) else {}
    refused = [({option: value}, f"{flag(option)} {value}") for option, value in OUT_OF_RANGE[name].items()]
    for options, beginning in [*refused, *EXCLUSIVE.get(name, [])]:
        with pytest.raises(ValueError, match=f"^{beginning}"):
            BUILD[name](**arch, **options)
            pytest.fail(f"{name} was built with {options}")
