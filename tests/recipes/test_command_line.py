"""A recipe as fairseq-hydra-train takes it and as the command line of fairseq-train: the same configuration."""

import subprocess
import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Union

import pytest
import torch
from fairseq import models, optim, options
from fairseq.data import Dictionary
from fairseq.dataclass.initialize import add_defaults, hydra_init
from fairseq.dataclass.utils import convert_namespace_to_omegaconf, omegaconf_no_object_check
from fairseq.models.transformer import TransformerModelBase
from fairseq.optim import lr_scheduler
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig, OmegaConf

import fairseq_mega  # noqa: F401
from fairseq_mega.compat import checks
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.command_line import arguments
from fairseq_mega.lab.recipes.recipe import FOLDER, as_yaml
from tests.support import lra_data

NAMES = ("_name", "arch")  # the line names the preset, the file the model itself
# fairseq's only model in the recipes without a dataclass: its options come from the function of its architecture when
# it is built, from a file as from a line, and a line's namespace has the options of all groups.
WITHOUT_DATACLASS = {"transformer"}
LENGTHS = {"total_num_update": None, "lr_period_updates": -1}  # of schedules: absent in a file, given by the line
OUTSIDE_OF_TRAINING = {"recipe", "bpe", "tokenizer", "scoring", "simul_type"}


def by_file(name: str, folder: Path = FOLDER) -> Dict[str, Any]:
    """Return the configuration that fairseq-hydra-train reads."""
    hydra_init(name)
    with initialize_config_dir(str(folder), version_base="1.1"):
        cfg = compose(name)
    add_defaults(cfg)
    with omegaconf_no_object_check():
        found = OmegaConf.to_container(OmegaConf.create(OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)))
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", ["comparison/bytes/mega", "mega/table2/text/mega", "mega/table7/en-de/transformer"])
def test_a_printed_recipe_needs_no_other_file(name: str, tmp_path: Path) -> None:
    """--yaml writes a file that fairseq-hydra-train reads in a folder of any place, as the recipe itself."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "one.yaml").write_text(as_yaml(catalogue()[name]), encoding="utf-8")
    found, wanted = by_file("own/one", tmp_path), by_file(name)
    for config in (found, wanted):
        del config["recipe"]
        config["lr_scheduler"].pop("total_num_update", None)  # by default that of the training, which the file names
    assert found == wanted


def by_line(words: list) -> Dict[str, Any]:
    """Return the configuration that fairseq-train reads."""
    parser = options.get_training_parser()
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, words))
    found = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True)
    assert isinstance(found, dict)
    return found


def built(cfg: Union[DictConfig, Namespace], monkeypatch: pytest.MonkeyPatch) -> Dict[str, Any]:
    """Return the configuration from which fairseq builds a Transformer of translation."""
    symbols = Dictionary()
    with monkeypatch.context() as patch:
        patch.setattr(TransformerModelBase, "build_model", classmethod(lambda cls, completed, task: completed))
        task = SimpleNamespace(source_dictionary=symbols, target_dictionary=symbols)
        found = asdict(models.build_model(cfg, task))
    for part in ("encoder", "decoder", "quant_noise"):
        del found[part]["_name"]  # the model's, see NAMES
    return found


def kinds() -> List[str]:
    """A recipe of each kind: of those with the same preset and the same options the first."""
    found: Dict[object, str] = {}
    for recipe in catalogue().values():
        entries = ((group, *entry) for group, options in recipe.config.items() for entry in options.items())
        switches = {(group, key, value is True) for group, key, value in entries}
        found.setdefault((recipe.preset, frozenset(switches)), recipe.name)
    return list(found.values())


@pytest.mark.parametrize("name", kinds())
def test_both_give_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = catalogue()[name]
    words = arguments(recipe.config, recipe.preset)
    monkeypatch.setattr("fairseq.utils.import_user_module", lambda _: None)  # fairseq_mega is imported already
    file, line = by_file(name), by_line(words)
    assert checks.problem(checks.options_of(file)) is None
    assert isinstance(line["model"], Namespace) == (file["model"]["_name"] in WITHOUT_DATACLASS)
    if isinstance(line["model"], Namespace):
        file["model"] = built(OmegaConf.create(file["model"]), monkeypatch)
        line["model"] = built(line["model"], monkeypatch)
    assert set(file) - OUTSIDE_OF_TRAINING == set(line) - {"_name"} - OUTSIDE_OF_TRAINING
    for option, default in LENGTHS.items():
        if file["lr_scheduler"].get(option, "missing") == default:
            file["lr_scheduler"][option] = line["lr_scheduler"][option]  # alike: test_a_schedule_without_its_length
    different = {
        f"{group}.{option}": (file[group].get(option, "missing"), line[group].get(option, "missing"))
        for group in set(line) - {"_name"} - OUTSIDE_OF_TRAINING
        for option in {*line[group], *file[group]} - set(NAMES)
        if file[group].get(option, "missing") != line[group].get(option, "missing")
    }
    assert not different
    assert file["task"]["_name"] == line["task"]["_name"]


@pytest.mark.parametrize(
    "name", ["mega/table2/text/mega_chunk", "mega/table2/text/s4d", "mega/table5/wikitext103/transformer"]
)
def test_a_schedule_without_its_length(name: str) -> None:
    """By a file the schedule has the rates of the line, which gives its number of updates."""
    recipe, rates = catalogue()[name], []
    for found in (by_file(name), by_line(arguments(recipe.config, recipe.preset))):
        cfg = OmegaConf.create(found)
        plain = Namespace(optimizer="sgd", lr=found["optimization"]["lr"], momentum=0.0, weight_decay=0.0)
        optimizer = optim.build_optimizer(plain, [torch.nn.Parameter(torch.zeros(1))])
        schedule = lr_scheduler.build_lr_scheduler(cfg.lr_scheduler, optimizer)
        rates.append([schedule.step_update(step) for step in range(0, recipe.updates, recipe.updates // 50)])
    assert rates[0] == rates[1] and len(set(rates[0])) > 10


@pytest.mark.slow
def test_hydra_trains_a_recipe(tmp_path: Path) -> None:
    """The documented command trains; the settings here replace the data, sizes and the number of updates."""
    (tmp_path / "data").mkdir()
    lra_data.write_texts(tmp_path / "data")
    settings = [f"task.data={tmp_path / 'data'}", "checkpoint.save_dir=out", "common.cpu=true"]
    settings += ["model.encoder_layers=1", f"model.sentence_class_num={lra_data.CLASSES}", "optimization.max_update=2"]
    settings += ["lr_scheduler.warmup_updates=1"]
    command = [sys.executable, "-m", "fairseq_cli.hydra_train", "--config-dir", str(FOLDER)]
    command += ["--config-name", "mega/table2/text/mega_chunk", *settings]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    cfg = torch.load(tmp_path / "out" / "checkpoint_last.pt")["cfg"]
    wanted = {**catalogue()["mega/table2/text/mega_chunk"].config["model"]}
    wanted.update(encoder_layers=1, sentence_class_num=lra_data.CLASSES)
    assert {option: cfg["model"][option] for option in wanted} == wanted
