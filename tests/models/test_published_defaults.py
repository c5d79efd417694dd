"""Every published architecture is built from the command line; where its defaults differ is what the table says."""

import re
from functools import lru_cache
from pathlib import Path

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_NAME_REGISTRY, MODEL_DATACLASS_REGISTRY
from omegaconf import OmegaConf

from fairseq_mega.models.mega_classifier import MegaClassifier
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.models.options.configurations import complete
from tests.support.published_defaults import (
    IMAGE,
    LANGUAGE_MODELING,
    LANGUAGE_MODELS,
    LINEAR_DECAY,
    SPEECH,
    TEXT,
    TRANSLATION,
)
from tests.support.tiny_classifier import task as classification
from tests.support.tiny_mega import task as text

TABLE = Path(__file__).parents[2] / "examples" / "published_defaults.md"
TASKS = {
    "translation": TRANSLATION,
    "mega_language_modeling": LANGUAGE_MODELS,
    "lra-text": TEXT,
    "lra-image": IMAGE,
    "speech_commands": SPEECH,
}
TASK_OF = {arch: task for task, archs in TASKS.items() for arch in archs}
PUBLISHED = {arch: values for archs in TASKS.values() for arch, values in archs.items()}


@lru_cache(maxsize=None)
def parse(*arguments):
    """A configuration of fairseq-train, with a criterion that the task, and adaptive tables, can have."""
    of_classes = {"lra-text", "lra-image", "speech_commands"} & set(arguments)
    given = ["data", "--criterion", "lra_cross_entropy" if of_classes else "adaptive_loss", *arguments]
    return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), given))


@lru_cache(maxsize=None)
def stub_task(name):
    """The attributes of a task that a model reads; 60,100 tokens are enough for the bands of the adaptive models."""
    if name in ("translation", "mega_language_modeling"):
        return text(60_100)
    return classification("text" if name == "lra-text" else "image")


def resolved(arch):
    """Defaults of an architecture; what says "as that one" is that one's."""
    cfg = parse("--arch", arch, "--task", TASK_OF[arch]).model
    if TASK_OF[arch] == "mega_language_modeling":
        completed = MegaLanguageModel.complete(cfg)
    elif "encoder_z_dim" in cfg and TASK_OF[arch] != "translation":
        completed = MegaClassifier.complete(cfg)
    else:
        completed = complete(MODEL_DATACLASS_REGISTRY[ARCH_MODEL_NAME_REGISTRY[arch]], cfg)
    values = OmegaConf.to_container(completed)
    for side in ("encoder", "decoder"):
        if values.get(f"{side}_ffn_embed_dim", 0) is None:
            values[f"{side}_ffn_embed_dim"] = values[f"{side}_hidden_dim"]
    if values.get("adaptive_input") and values["adaptive_input_cutoff"] is None:
        values["adaptive_input_cutoff"] = values["adaptive_softmax_cutoff"]
    return values


def plain(value):
    """A value as it stands in the table."""
    return str(getattr(value, "value", value))


def differences():
    """(architecture, task or schedule, option) to published value and ours, where they differ."""
    found = {}
    for arch, published in PUBLISHED.items():
        ours = resolved(arch)
        for option, value in published.items():
            if plain(ours[option]) != plain(value):
                found[arch, option] = (plain(value), plain(ours[option]))
    cfg = parse("--arch", "mega_lm", "--task", "mega_language_modeling", "--lr-scheduler", "linear_decay")
    for name, published, ours in (
        ("mega_language_modeling", LANGUAGE_MODELING, cfg.task),
        ("linear_decay", LINEAR_DECAY, cfg.lr_scheduler),
    ):
        for option, value in published.items():
            if plain(ours[option]) != plain(value):
                found[name, option] = (plain(value), plain(ours[option]))
    return found


def rows():
    """The table as :func:`differences` gives them."""
    found = {}
    for line in TABLE.read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| `") or len(cells) != 5:
            continue
        names, (option,) = re.findall(r"`([^`]+)`", cells[0]), re.findall(r"`--([^`]+)`", cells[1])
        for name in names:
            key = (name, option.replace("-", "_"))
            assert key not in found, f"{key} stands twice in {TABLE.name}"
            found[key] = tuple(cell.strip("`") for cell in cells[2:4])
    return found


def test_the_table_says_where_defaults_differ():
    """All of them, and nothing else; the last column is ours as the code has it."""
    assert rows() == differences()
