"""The published batch on fewer GPUs, or on a CPU."""

from typing import NamedTuple, Optional

from fairseq_mega.lab.recipes.recipe import Config, RecipeError

COUNTS = (("dataset", "batch_size"), ("dataset", "max_tokens"), ("optimization", "update_freq"))


class Batch(NamedTuple):
    """Division of an update's examples into steps and places.

    Attributes:
        step: examples that a place (a GPU, or the CPU) processes at a time; None where the recipe counts tokens.
        accumulated: steps of an update.
        places: GPUs, or 1.
        synchronised: whether a batch norm needs the examples of all places.
    """

    step: Optional[int]
    accumulated: int
    places: int
    synchronised: bool


def share_out(config: Config, gpus: int, per_step: Optional[int] = None) -> Batch:
    """Divide the published batch among the largest number of GPUs that divides it, up to ``gpus`` (0: the CPU).

    A batch norm sees as many examples at a time as in the published recipe, where possible.

    Raises:
        RecipeError: if a number is less than 1, or ``per_step`` does not divide the share of a place.
    """
    for group, option in COUNTS:
        value = config[group].get(option)
        for number in value if isinstance(value, list) else [value]:
            if number is not None and number < 1:
                raise RecipeError(f"{group}.{option} {value}: give at least 1")
    published = int(config["distributed_training"]["distributed_world_size"])
    accumulated = int(config["optimization"]["update_freq"][0])
    if counts_tokens(config):  # the number of batches counts, on any GPU
        batches = published * accumulated
        places = dividing(batches, max(1, gpus))
        return Batch(None, batches // places, places, False)
    step = config["dataset"]["batch_size"]
    examples, at_a_time = step * accumulated * published, step * published
    norm = str(config["model"].get("normalization_type", ""))
    places = dividing(examples, max(1, gpus))
    share = examples // places
    if per_step is not None:
        if share % per_step:
            raise RecipeError(
                f"--per-step is {per_step}, which does not divide the {share} examples of an update on each device: "
                f"give a divisor"
            )
        return Batch(per_step, share // per_step, places, places > 1 and "batchnorm" in norm)
    most = -(-at_a_time // places) if "batchnorm" in norm else step
    step = dividing(share, most)
    return Batch(step, share // step, places, places > 1 and "batchnorm" in norm)


def counts_tokens(config: Config) -> bool:
    """Return whether the batches of a training are measured in tokens, not in examples."""
    return "max_tokens" in config["dataset"] or config["dataset"].get("batch_size") is None


def dividing(whole: int, most: int) -> int:
    """The largest divisor of a number up to a limit."""
    return next(number for number in range(min(whole, most), 0, -1) if whole % number == 0)


def seen_by_norm(config: Config) -> Optional[int]:
    """Examples that a batch norm sees at a time; None for other norms."""
    norm = str(config["model"].get("normalization_type", ""))
    places = config["distributed_training"]["distributed_world_size"]
    return config["dataset"]["batch_size"] * max(1, places) if "batchnorm" in norm else None
