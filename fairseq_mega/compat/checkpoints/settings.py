"""Settings of a model that no tensor shows: with other settings, the same weights load but compute something else."""

import argparse
import typing

SETTINGS = (
    *("activation_fn", "attention_activation_fn", "classifier_activation_fn", "rel_pos_bias", "normalization_type"),
    *("normalize_before", "encoder_normalize_before", "decoder_normalize_before", "no_token_positional_embeddings"),
    *("no_scale_embedding", "scale_embedding", "encoder_sinusoidal_pos", "rope_base", "norm_num_groups", "ema_norm"),
    *("encoder_chunk_size", "decoder_chunk_size", "encoder_attention_heads", "decoder_attention_heads"),
    *("residual_hops", "reset_at_document_ends", "no_padding_logit", "published_source_padding", "sen_rep_type"),
)
OF_TRAINING = {  # options of a model's training, its speed or its first weights, which scores do not depend on
    *("dropout", "attention_dropout", "activation_dropout", "act_dropout", "hidden_dropout", "feature_dropout"),
    *("adaptive_softmax_dropout", "late_dropout", "attention_drops", "drop_path", "checkpoint_activations"),
    *("encoder_embed_path", "decoder_embed_path", "init_mode", "least_step", "largest_step", "state_space_init"),
    *("state_space_rate", "state_space_step_rate", "pad_batches"),
}


def other_settings(checkpoint: typing.Dict[str, typing.Any], model: typing.Any) -> typing.List[str]:
    """Describe the settings that a checkpoint was trained with and a model does not have.

    Args:
        checkpoint: of fairseq, of any age.
        model: configuration of a model, or another checkpoint.
    """
    one, other = _model_of(checkpoint), _model_of(model)
    values = ((name, _value(one, name), _value(other, name)) for name in SETTINGS)
    return [
        f"--{name.replace('_', '-')} {before}, not {now}"
        for name, before, now in values
        if None not in (before, now) and str(before) != str(now)
    ]


def seed_of(checkpoint: typing.Dict[str, typing.Any]) -> typing.Optional[int]:
    """Return the seed of the training that wrote a checkpoint; None if it is not recorded."""
    return typing.cast(typing.Optional[int], _value(_group_of(checkpoint, "common"), "seed"))


def _model_of(given: typing.Any) -> typing.Any:
    """Return the configuration of the model in a checkpoint; a configuration itself is returned unchanged."""
    return _group_of(given, "model") if isinstance(given, dict) and "model" in given else given


def _group_of(checkpoint: typing.Dict[str, typing.Any], name: str) -> typing.Any:
    """Return a group of a checkpoint's options; all options of a checkpoint of an older fairseq."""
    whole = checkpoint.get("cfg")
    return checkpoint.get("args") if whole is None else _value(whole, name)


def _value(model: typing.Any, name: str) -> typing.Any:
    """Return a setting, None if it is not known; a decoder without the setting has the encoder's."""
    model = vars(model) if isinstance(model, argparse.Namespace) else model
    found = model.get(name) if hasattr(model, "get") else None
    if found is None and name.startswith("decoder_"):
        return _value(model, name.replace("decoder_", "encoder_", 1))
    return found
