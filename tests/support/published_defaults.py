"""Defaults of the published code (facebookresearch/mega at 09f1a872), under the names that the options have here.

Facts read from its parsers and architecture functions; an option that has no default there is omitted.
"""

from typing import Any, Dict

Values = Dict[str, Any]


_LAYERS: Values = {
    "activation_fn": "silu",
    "feature_dropout": False,
    "rel_pos_bias": "simple",
    "normalize_embedding": False,
}
_SEQUENCES: Values = {  # of translation and language models
    **_LAYERS,
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "attention_activation_fn": "softmax",
    "normalization_type": "layernorm",
    "normalize_before": False,
    "no_scale_embedding": False,
    "adaptive_softmax_cutoff": None,
    "adaptive_softmax_dropout": 0.0,
    "share_decoder_input_output_embed": False,
    "max_target_positions": 1024,
}
_MT: Values = {
    **_SEQUENCES,
    "encoder_embed_dim": 512,
    "encoder_hidden_dim": 1024,
    "encoder_z_dim": 128,
    "encoder_n_dim": 16,
    "encoder_layers": 6,
    "decoder_layers": 6,
    "encoder_chunk_size": -1,
    "activation_dropout": 0.0,
    "truncation_length": 1024,
    "share_all_embeddings": False,
    "max_source_positions": 1024,
}
_DROPOUTS = {"attention_dropout": 0.1, "hidden_dropout": 0.1, "activation_dropout": 0.1}
_LM: Values = {
    **_SEQUENCES,
    "decoder_embed_dim": 512,
    "decoder_hidden_dim": 1664,
    "decoder_z_dim": 128,
    "decoder_n_dim": 16,
    "decoder_layers": 6,
    "decoder_chunk_size": -1,
    "no_affine_final_norm": False,
    "truncation_length": 2048,
    "adaptive_input": False,
    "adaptive_input_factor": 4.0,
    "adaptive_input_cutoff": None,
    "adaptive_softmax_factor": 4.0,
    "tie_adaptive_weights": False,
    "tie_adaptive_proj": False,
}
_ADAPTIVE: Values = {
    **_DROPOUTS,
    "dropout": 0.3,
    "adaptive_input": True,
    "adaptive_input_cutoff": "20000,60000",
    "adaptive_softmax_cutoff": "20000,60000",
    "adaptive_softmax_dropout": 0.2,
    "tie_adaptive_weights": True,
    "tie_adaptive_proj": True,
}


def _sizes(d: int, v: int, z: int, layers: int) -> Values:
    return {"decoder_embed_dim": d, "decoder_hidden_dim": v, "decoder_z_dim": z, "decoder_layers": layers}


_BIG = _sizes(1024, 2048, 256, 16)
_CLASSIFIER: Values = {
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "encoder_layers": 6,
    "normalize_before": False,
    "sentence_class_num": 2,
    "classifier_layers": 1,
    "classifier_activation_fn": "gelu",
}
_MEGA_CLASSIFIER: Values = {
    **_CLASSIFIER,
    **_LAYERS,
    "hidden_dropout": 0.0,
    "activation_dropout": 0.0,
    "encoder_n_dim": 16,
    "attention_activation_fn": "relu2",
    "sen_rep_type": "mp",
    "truncation_length": 1024,
    "encoder_chunk_size": -1,
}


def _classifier(d: int, z: int, layers: int, positions: int, **more: Any) -> Values:
    sizes = {"encoder_embed_dim": d, "encoder_hidden_dim": 2 * d, "encoder_z_dim": z, "encoder_layers": layers}
    return {**_MEGA_CLASSIFIER, **sizes, "classifier_out_dim": 2 * d, "max_positions": positions, **more}


def _speech(d: int, z: int) -> Values:
    functions = {"attention_activation_fn": "laplace", "normalization_type": "batchnorm", "normalize_before": True}
    lengths = {"encoder_chunk_size": 1000, "truncation_length": 1000, "sentence_class_num": 10}
    return _classifier(d, z, 6, 16000, dropout=0.0, attention_dropout=0.0, **functions, **lengths)


def _transformer(d: int, ffn: int, heads: int, layers: int, head: int, positions: int, **more: Any) -> Values:
    sizes = {"encoder_embed_dim": d, "encoder_ffn_embed_dim": ffn, "encoder_attention_heads": heads}
    rest = {"normalize_before": True, "activation_fn": "gelu", "activation_dropout": 0.0, "sen_rep_type": "cls"}
    lengths = {"encoder_layers": layers, "classifier_out_dim": head, "max_positions": positions}
    return {**_CLASSIFIER, **rest, **sizes, **lengths, **more}


_BATCH = {"normalization_type": "batchnorm"}
_SCALE = {"normalization_type": "scalenorm"}
TRANSLATION = {
    "mega": _MT,
    "mega_wmt_en_de": {**_MT, **_DROPOUTS},
    "mega_wmt_en_de_big": {
        **_MT,
        **_DROPOUTS,
        "dropout": 0.3,
        "encoder_embed_dim": 1024,
        "encoder_hidden_dim": 2048,
        "encoder_z_dim": 256,
    },
}
LANGUAGE_MODELS = {
    "mega_lm": _LM,
    "mega_lm_big": {**_LM, **_BIG},
    "mega_lm_adaptive_big": {**_LM, **_BIG, **_ADAPTIVE},
    "mega_lm_wiki103": {**_LM, **_BIG, **_ADAPTIVE},
    "mega_lm_adaptive_base": {**_LM, **_sizes(768, 1536, 128, 16), **_ADAPTIVE},
    "mega_lm_enwik8_base": {**_LM, **_sizes(512, 1024, 128, 12), "activation_dropout": 0.0},
    "mega_lm_enwik8_large": {
        **_LM,
        **_sizes(1024, 1536, 128, 24),
        "dropout": 0.2,
        "attention_dropout": 0.1,
        "hidden_dropout": 0.1,
    },
}
TEXT = {
    "mega_lra_listop": _classifier(80, 64, 6, 2002, sentence_class_num=10, **_SCALE),
    "mega_lra_imdb": _classifier(128, 64, 4, 4002, **_SCALE),
    "mega_lra_aan": _classifier(128, 64, 6, 4002),
    "transformer_lra_listop": _transformer(512, 2048, 8, 6, 2048, 2002, sentence_class_num=10),
    "transformer_lra_imdb": _transformer(256, 1024, 4, 4, 1024, 4002),
    "transformer_lra_aan": _transformer(128, 512, 4, 4, 512, 4002),
}
IMAGE = {
    "mega_lra_cifar10": _classifier(160, 96, 8, 1024, encoder_chunk_size=1024, sentence_class_num=10, **_BATCH),
    "mega_lra_pf32": _classifier(128, 64, 6, 1024, encoder_chunk_size=1024, **_BATCH),
    "mega_lra_pf128": _classifier(64, 32, 4, 16384, encoder_chunk_size=16384, **{**_BATCH, "truncation_length": 4096}),
    "transformer_lra_cifar10": _transformer(64, 128, 8, 1, 128, 1024, sentence_class_num=10),
    "transformer_lra_pf32": _transformer(128, 128, 4, 1, 256, 1026, sen_rep_type="mp"),
}
SPEECH = {**dict.fromkeys(("sc_raw", "mega_sc_raw", "mega_sc_raw_base"), _speech(60, 30))}
SPEECH["mega_sc_raw_big"] = _speech(72, 36)

# --task and --lr-scheduler, where they have options of their own.
LANGUAGE_MODELING: Values = {
    "sample_break_mode": "none",
    "tokens_per_sample": 1024,
    "variant_block_multiple_min": 1,
    "variant_block_multiple_max": 1,
    "valid_block": "size:100000000",
    "chunk_nums": 1,
    "test_chunk_size": 1024,
}
LINEAR_DECAY: Values = {
    "warmup_updates": 0,
    "warmup_power": 1.0,
    "warmup_init_lr": -1.0,
    "end_learning_rate": 0.0,
    "total_num_update": 1000000,
}
