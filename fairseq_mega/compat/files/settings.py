"""Settings of a model that no tensor shows: with other settings, the same weights load but compute something else."""

import argparse
import enum
from typing import Any, Dict, List, Mapping, Optional, cast


class Role(enum.Enum):
    """Effect of a model's option on a model with trained weights."""

    TENSORS = "names or shapes of tensors depend on it: weights trained with another value do not load"
    OUTPUTS = "the same weights load with another value, and compute something else"
    RUN = "the same weights may be trained with one value and scored with another"
    TRAINING = "of a training, its speed or its first weights: no score of trained weights depends on it"


# Options of fairseq's own models; ours register theirs. An option has one role in all models.
_ROLES = dict.fromkeys(
    ("encoder_normalize_before", "decoder_normalize_before", "no_token_positional_embeddings"), Role.OUTPUTS
)


def register_roles(roles: Mapping[str, Role]) -> None:
    """Add the options of a model.

    Raises:
        ValueError: if another model has one of them with another role.
    """
    other = sorted(name for name, role in roles.items() if _ROLES.get(name, role) is not role)
    if other:
        raise ValueError(f"options that have another role in another model: {', '.join(other)}")
    _ROLES.update(roles)


def options_of(role: Role) -> List[str]:
    """Return the names of the options of all models with a role, in alphabetical order."""
    return sorted(name for name, own in _ROLES.items() if own is role)


def output_settings(model: Any) -> Dict[str, str]:
    """Return the settings that the outputs of weights depend on, as texts.

    Args:
        model: configuration of a model, or a checkpoint of any age.
    """
    settings = _model_of(model)
    values = ((name, setting_of(settings, name)) for name in options_of(Role.OUTPUTS))
    return {name: str(value) for name, value in values if value is not None}


def other_settings(checkpoint: Dict[str, Any], model: Any) -> List[str]:
    """Describe the settings that a checkpoint was trained with and a model does not have.

    Args:
        checkpoint: of fairseq, of any age, or its :func:`output_settings`.
        model: configuration of a model, or another checkpoint.
    """
    one, other = output_settings(checkpoint), output_settings(model)
    shared = sorted(one.keys() & other.keys())
    return [f"--{n.replace('_', '-')} {one[n]}, not {other[n]}" for n in shared if one[n] != other[n]]


def seed_of(checkpoint: Dict[str, Any]) -> Optional[int]:
    """Return the seed of the training that wrote a checkpoint; None if it is not recorded."""
    return cast(Optional[int], setting_of(group_of(checkpoint, "common"), "seed"))


def settings_of(task: Any) -> Any:
    """Return the settings of a task of fairseq, new or old; None if it has none."""
    return getattr(task, "args", None) or getattr(task, "cfg", None)


def setting_of(model: Any, name: str) -> Any:
    """Return a setting, None if it is not known; a decoder without the setting has the encoder's.

    Args:
        model: settings by name, or a Namespace.
    """
    model = vars(model) if isinstance(model, argparse.Namespace) else model
    found = model.get(name) if hasattr(model, "get") else None
    if found is None and name.startswith("decoder_"):
        return setting_of(model, name.replace("decoder_", "encoder_", 1))
    return found


def _model_of(given: Any) -> Any:
    """Return the configuration of the model in a checkpoint; a configuration itself is returned unchanged."""
    return group_of(given, "model") if isinstance(given, dict) and "model" in given else given


def group_of(checkpoint: Dict[str, Any], name: str) -> Any:
    """Return a group of a checkpoint's options; all options of a checkpoint of an older fairseq."""
    whole = checkpoint.get("cfg")
    return checkpoint.get("args") if whole is None else setting_of(whole, name)
