"""Fill configurations of any origin, and check their values."""

from argparse import Namespace
from typing import Mapping, Type, Union

from fairseq.dataclass import FairseqDataclass
from omegaconf import DictConfig, OmegaConf

from .flags import flag

DEFAULT_MAX_POSITIONS = 1024


def complete(dataclass_type: Type[FairseqDataclass], cfg: Union[DictConfig, Namespace]) -> DictConfig:
    """Fill a model configuration of any origin with the defaults of its dataclass.

    fairseq passes a model its dataclass, the options of an architecture preset, or the options of an older checkpoint;
    the result has one form for all three.
    """
    base = OmegaConf.structured(dataclass_type)
    given = vars(cfg) if isinstance(cfg, Namespace) else {key: cfg[key] for key in cfg}
    known = {key: value for key, value in given.items() if key in base and value is not None}
    for key in ("max_source_positions", "max_target_positions"):  # the task's, missing from old checkpoints
        if key in base:
            known.setdefault(key, DEFAULT_MAX_POSITIONS)
    return OmegaConf.merge(base, known)


def check_at_least(cfg: DictConfig, bounds: Mapping[str, int]) -> None:
    """Raise a ValueError for the first option whose value is below its bound."""
    for option, least in bounds.items():
        if cfg[option] < least:
            raise ValueError(f"{flag(option)} {cfg[option]}: must be at least {least}")


def check_embedding_norm(cfg: DictConfig) -> None:
    """Raise a ValueError if a norm on the embeddings would be followed by another norm."""
    if cfg.normalize_embedding and cfg.normalize_before:
        raise ValueError(
            "--normalize-embedding requires a post-norm model: leave out --normalize-before or --normalize-embedding"
        )
