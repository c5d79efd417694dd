"""Options that no model can have: an error that begins with the flag and the value."""

from typing import Any, Callable, Dict, List, Tuple

import pytest

from tests.support import tiny_classifier, tiny_images, tiny_llama, tiny_lm, tiny_masked_lm, tiny_mega, tiny_megalodon
from tests.support.tiny_mega import dictionary, task

Refused = List[Tuple[Dict[str, Any], str]]
CUTOFF = {"adaptive_softmax_cutoff": "6,13", "adaptive_softmax_factor": 2.0}
TIED = {"adaptive_input": True, "adaptive_input_factor": 2.0, "tie_adaptive_weights": True, "tie_adaptive_proj": True}
APART = {"share_decoder_input_output_embed": False}
OTHER_INPUT: Refused = [({"input_type": "image"}, "--input-type image: the data of this task have --input-type text")]

MODELS: Dict[str, Tuple[Callable[..., Any], Refused]] = {
    "mega": (
        tiny_mega.build,
        [
            (
                {"share_all_embeddings": True, "task": task(target=dictionary(9))},
                "--share-all-embeddings .*--joined-dictionary",
            ),
            ({"decoder_embed_dim": 6}, "--decoder-embed-dim 6 differs from --encoder-embed-dim 8"),
            ({"normalize_before": True, "normalize_embedding": True}, "--normalize-embedding"),
            ({"encoder_layers": 0}, "--encoder-layers 0"),
            ({"encoder_chunk_size": 0}, "--encoder-chunk-size 0: .*-1 for full attention"),
            ({"encoder_chunk_size": -2}, "--encoder-chunk-size -2"),
            ({"decoder_chunk_size": 0}, "--decoder-chunk-size 0"),
            ({"encoder_n_dim": -1}, "--encoder-n-dim -1"),
            ({"decoder_n_dim": -1}, "--decoder-n-dim -1"),
            ({"encoder_z_dim": 0}, "--encoder-z-dim 0"),
            ({"rel_pos_bias": "rotary", "encoder_z_dim": 5}, "--encoder-z-dim 5: .*even"),
            ({"encoder_hidden_dim": -1}, "--encoder-hidden-dim -1"),
            ({"encoder_ffn_embed_dim": -5}, "--encoder-ffn-embed-dim -5"),
            ({"max_source_positions": 0}, "--max-source-positions 0"),
            ({"dropout": 1.0}, r"--dropout 1.0: .*\[0, 1\)"),
            ({"attention_dropout": -0.1}, "--attention-dropout -0.1"),
            ({"late_dropout": -1}, "--late-dropout -1"),
            ({**CUTOFF, **APART, "share_decoder_input_output_embed": True}, "--share-decoder-input-output-embed "),
            ({"adaptive_softmax_cutoff": "6,99"}, "--adaptive-softmax-cutoff 6,99: .* 24 tokens"),
            ({**CUTOFF, "tie_adaptive_weights": True}, "--tie-adaptive-weights requires --adaptive-input"),
            ({**CUTOFF, **TIED, "share_all_embeddings": True}, "--share-all-embeddings"),
            ({**CUTOFF, **TIED, "decoder_embed_path": "file"}, "--decoder-embed-path"),
        ],
    ),
    "mega_lm": (
        tiny_lm.build,
        [
            ({**APART, "adaptive_softmax_cutoff": "13,6"}, "--adaptive-softmax-cutoff 13,6"),
            ({**APART, "adaptive_softmax_cutoff": "6,x"}, "--adaptive-softmax-cutoff 6,x"),
            ({**APART, "adaptive_softmax_cutoff": "6,24"}, "--adaptive-softmax-cutoff 6,24: .* 24 tokens"),
            ({**APART, "adaptive_input": True}, "--adaptive-input requires --adaptive-input-cutoff"),
            ({"adaptive_softmax_cutoff": "6,13"}, "--share-decoder-input-output-embed "),
            ({"tie_adaptive_weights": True}, "--tie-adaptive-weights requires"),
            ({**tiny_lm.ADAPTIVE, "tie_adaptive_weights": False}, "--tie-adaptive-proj requires"),
            ({**tiny_lm.ADAPTIVE, "adaptive_input_factor": 4.0}, ".*--adaptive-input-factor is 4.0"),
            ({"decoder_input_dim": 4}, "--decoder-input-dim 4 .* --share-decoder-input-output-embed"),
            ({"normalize_before": False}, "--no-affine-final-norm requires --normalize-before"),
            ({"normalize_embedding": True}, "--normalize-embedding"),
            ({"decoder_layers": 0}, "--decoder-layers 0"),
            ({"decoder_chunk_size": 0}, "--decoder-chunk-size 0"),
            ({"late_dropout": -1}, "--late-dropout -1"),
        ],
    ),
    "megalodon_lm": (
        tiny_megalodon.build,
        [
            ({"decoder_attention_heads": 3}, "--decoder-z-dim 8: .* 2 x --decoder-attention-heads = 6"),
            ({"norm_num_groups": 3}, "--decoder-embed-dim 8: .* --norm-num-groups = 3"),
            ({"decoder_n_dim": 0}, "--decoder-n-dim 0"),
            ({"decoder_ffn_embed_dim": 0}, "--decoder-ffn-embed-dim 0"),
            ({"decoder_chunk_size": 0}, "--decoder-chunk-size 0"),
            ({"decoder_layers": 0}, "--decoder-layers 0"),
            ({"rope_base": 0.5}, "--rope-base 0.5"),
            ({"statistics_window": -1}, "--statistics-window -1"),
            ({"statistics_window": 6, "decoder_chunk_size": -1}, "--statistics-window 6 counts chunks"),
            ({"decoder_input_dim": 4}, "--decoder-input-dim 4 .* --share-decoder-input-output-embed"),
            ({"adaptive_softmax_cutoff": "6,13"}, "--share-decoder-input-output-embed "),
            ({"late_dropout": -1}, "--late-dropout -1"),
        ],
    ),
    "llama_lm": (
        tiny_llama.build,
        [
            ({"decoder_attention_heads": 3}, "--decoder-embed-dim 8: .* 2 x --decoder-attention-heads = 6"),
            ({"decoder_ffn_embed_dim": 0}, "--decoder-ffn-embed-dim 0"),
            ({"rope_base": 1.0}, "--rope-base 1.0"),
            ({"decoder_layers": 0}, "--decoder-layers 0"),
        ],
    ),
    "mega_masked_lm": (
        tiny_masked_lm.build,
        [
            ({"token_types": -1}, "--token-types -1"),
            ({"max_positions": 0}, "--max-positions 0"),
            ({"encoder_chunk_size": 0}, "--encoder-chunk-size 0"),
        ],
    ),
    "mega_lra": (
        tiny_classifier.build,
        [
            ({"encoder_layers": 0}, "--encoder-layers 0"),
            ({"sentence_class_num": 1}, "--sentence-class-num 1"),
            ({"classifier_out_dim": 0}, "--classifier-out-dim 0"),
            ({"encoder_chunk_size": 0}, "--encoder-chunk-size 0"),
            ({"encoder_z_dim": 0}, "--encoder-z-dim 0"),
            ({"encoder_n_dim": -1}, "--encoder-n-dim -1"),
            *OTHER_INPUT,
            ({"kind": "image", "sen_rep_type": "cls"}, "--sen-rep-type cls: real numbers have no <CLS>"),
            ({"normalize_embedding": True, "normalize_before": True}, "--normalize-embedding"),
            ({"act_dropout": 1.0}, ".*dropout 1.0"),
        ],
    ),
    "megalodon_lra": (
        tiny_classifier.build,
        [
            ({"norm_num_groups": 3}, "--encoder-embed-dim 8: .* --norm-num-groups = 3"),
            ({"encoder_attention_heads": 5}, "--encoder-z-dim 8: .* 2 x --encoder-attention-heads = 10"),
            ({"encoder_layers": 0}, "--encoder-layers 0"),
            *OTHER_INPUT,
        ],
    ),
    "s4d_lra": (
        tiny_classifier.build,
        [
            ({"encoder_n_dim": 5}, "--encoder-n-dim 5"),
            ({"encoder_n_dim": 0}, "--encoder-n-dim 0"),
            ({"least_step": 0.2}, "--least-step 0.2: .* --largest-step 0.1"),
            ({"least_step": 0.0}, "--least-step 0.0"),
            ({"state_space_rate": 0.0}, "--state-space-rate 0.0"),
            ({"state_space_step_rate": -1.0}, "--state-space-step-rate -1.0"),
            ({"dropout": 1.0}, "--dropout 1.0"),
            ({"encoder_embed_dim": 0}, "--encoder-embed-dim 0"),
            *OTHER_INPUT,
        ],
    ),
    "transformer_lra": (
        tiny_classifier.build,
        [
            ({"encoder_attention_heads": 3}, "--encoder-attention-heads 3 does not divide --encoder-embed-dim 8"),
            ({"encoder_attention_heads": 0}, "--encoder-attention-heads 0"),
            ({"attention_dropout": -0.1}, "--attention-dropout -0.1"),
            ({"max_positions": 0}, "--max-positions 0"),
            *OTHER_INPUT,
        ],
    ),
    "mega_image": (
        tiny_images.build,
        [
            ({"image_size": 13}, "--patch-size 4 does not divide --image-size 13"),
            ({"image_size": 2}, "--patch-size 4 does not divide --image-size 2"),
            ({"patch_size": 0}, "--patch-size 0"),
            ({"image_class_num": 1}, "--image-class-num 1"),
            ({"encoder_layers": 0}, "--encoder-layers 0"),
            ({"encoder_z_dim": 0}, "--encoder-z-dim 0"),
            ({"drop_path": 1.0}, "--drop-path 1.0"),
            ({"dropout": -0.5}, "--dropout -0.5"),
        ],
    ),
    "megalodon_image": (
        tiny_images.build,
        [
            ({"patch_size": 5}, "--patch-size 5 does not divide --image-size 12"),
            ({"image_class_num": 1}, "--image-class-num 1"),
            ({"encoder_layers": 0}, "--encoder-layers 0"),
            ({"encoder_n_dim": 0}, "--encoder-n-dim 0"),
            ({"norm_num_groups": 3}, "--encoder-embed-dim 8: .* --norm-num-groups = 3"),
            ({"encoder_z_dim": 3}, "--encoder-z-dim 3: .* 2 x --encoder-attention-heads = 2"),
            ({"drop_path": 1.0, "encoder_layers": 1}, "--drop-path 1.0"),
            ({"rope_base": 1.0}, "--rope-base 1.0"),
        ],
    ),
    "vit_image": (
        tiny_images.build,
        [
            ({"encoder_attention_heads": 3}, "--encoder-attention-heads 3 does not divide --encoder-embed-dim 8"),
            ({"patch_size": 5}, "--patch-size 5 does not divide --image-size 12"),
            ({"encoder_layers": 0}, "--encoder-layers 0"),
        ],
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=tiny_images.needs_timm if name == "vit_image" else ()) for name in MODELS]
)
def test_the_flag_is_named(name: str) -> None:
    build, refused = MODELS[name]
    of_several = {"arch": name} if build in (tiny_classifier.build, tiny_images.build) else {}
    for options, message in refused:
        with pytest.raises(ValueError, match=f"^{message}"):
            build(**of_several, **options)
            pytest.fail(f"{name} was built with {options}")
