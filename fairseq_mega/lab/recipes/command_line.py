"""A recipe's configuration as the command line of fairseq-train."""

from typing import Any, List, Sequence

from .recipe import GROUPS, Config

PAIRS = ("pixel_normalization",)  # options of two words; other lists are one, with commas
NAMED = {"task": "--task", "criterion": "--criterion", "optimizer": "--optimizer", "lr_scheduler": "--lr-scheduler"}


def arguments(config: Config, preset: str, groups: Sequence[str] = GROUPS) -> List[str]:
    """The arguments of fairseq-train that give this configuration: the data, and a flag for each entry.

    A flag without a value is a switch; false values are omitted, as all of the recipes' switches are off by default.

    Args:
        config: of a recipe.
        preset: the --arch, whose values are all repeated as flags.
        groups: of the configuration.
    """
    words = [str(config["task"]["data"])]
    for group in groups:
        options = dict(config[group])
        if group == "model":
            words += ["--arch", preset]
        elif group in NAMED:
            words += [NAMED[group], options["_name"]]
        for option, value in options.items():
            if option != "_name" and (group, option) != ("task", "data"):
                words += flag(option, value)
    return words


def flag(option: str, value: Any) -> List[str]:
    """Return an option with its value as words of a command line; nothing for one that is off or not set."""
    name = flag_of(option)
    if value is None or value is False:
        return []
    if value is True:
        return [name]
    if option in PAIRS:
        return [name, *map(str, value)]
    return [name, ",".join(map(str, value)) if isinstance(value, list) else str(value)]


def flag_of(option: str) -> str:
    """The name of an option on a command line."""
    return "--" + option.replace("_", "-")


def without_user_dir(words: Sequence[str]) -> List[str]:
    """The words of a command line without the option that names the plugin."""
    place = words.index("--user-dir")
    return [*words[:place], *words[place + 2 :]]
