"""Reading recipes: what is wrong with a file is said, names stand for what they should, and tables are complete."""

import copy
import shlex
from argparse import Namespace
from pathlib import Path
from typing import Any, List

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY

from fairseq_mega.lab.recipes import recipe as recipe_files
from fairseq_mega.lab.recipes.catalogue import catalogue, find, find_all
from fairseq_mega.lab.recipes.command_line import without_user_dir
from fairseq_mega.lab.recipes.paper_values import without_recipe
from fairseq_mega.lab.recipes.recipe import FOLDER, RecipeError, load
from fairseq_mega.lab.recipes.smoke import OF_DATA, shrink, toy
from fairseq_mega.lab.reproduce import command as reproducing
from fairseq_mega.lab.reproduce import training
from fairseq_mega.lab.reproduce.command import line_of, main
from fairseq_mega.lab.reproduce.data import data_of
from fairseq_mega.lab.reproduce.jobs import plan
from fairseq_mega.lab.reproduce.settings import Choices
from fairseq_mega.models.presets import preset
from tests.support.in_process import words_of

ONE = (FOLDER / "mega/table2/text/mega_chunk.yaml").read_text(encoding="utf-8")
INHERITS = "[/mega/table2/text/mega@_global_, _self_]"
WRONG = [
    ("recipe:", "recipes:", ": recipes"),
    ("  number:", "  cell: 128\n  number:", "recipe.cell"),
    ("  number:", "  numbers:", "recipe.numbers"),
    ("  number:", "  evaluate: {kind: guess}\n  number:", "'evaluate'"),
    (INHERITS, "[mega, _self_]", "'defaults'"),
    (INHERITS, "[/mega/table2/text/mega@_global_, _self_, /base/bytes@_global_]", "'defaults'"),
]


def test_errors_name_file_and_entry(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    for old, new, entry in WRONG:
        assert old in ONE
        path.write_text(ONE.replace(old, new), encoding="utf-8")
        with pytest.raises(RecipeError, match=f"own.yaml: .*{entry}"):
            load(path)


def test_a_file_inherits_entry_by_entry(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(
        ONE.replace("{encoder_chunk_size: 128}", "{encoder_chunk_size: 64, dropout: 0.2}"), encoding="utf-8"
    )
    own, parent = load(path), catalogue()["mega/table2/text/mega"]
    assert own.config == {
        **parent.config,
        "model": {**parent.config["model"], "encoder_chunk_size": 64, "dropout": 0.2},
    }
    assert own.cell == {**parent.cell, "chunk": 64} and own.paper == {"test_accuracy": 90.19}
    path.write_text(ONE.replace("{test_accuracy: 90.19}", "{test_accuracy: null}"), encoding="utf-8")
    assert load(path).paper == {} and parent.paper == {"test_accuracy": 90.43}


@pytest.mark.parametrize(
    ("name", "option", "value"),
    [
        ("mega/table2/text/mega_chunk", "total_num_update", 30000.0),
        ("mega/table2/text/s4d", "lr_period_updates", 25000.0),
    ],
)
def test_a_schedule_ends_with_the_training(tmp_path: Path, name: str, option: str, value: float) -> None:
    """Its number of updates is that of the training, without the warm-up in fairseq's cosine, unless a file has one."""
    path = tmp_path / "own.yaml"
    text = f"defaults: [/{name}@_global_, _self_]\noptimization: {{max_update: 30000}}\n"
    path.write_text(text, encoding="utf-8")
    assert load(path).config["lr_scheduler"][option] == value
    path.write_text(f"{text}lr_scheduler: {{{option}: 7.0}}\n", encoding="utf-8")
    assert load(path).config["lr_scheduler"][option] == 7.0


def test_a_recipe_as_one_file(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    for name, recipe in catalogue().items():
        path.write_text(recipe_files.as_yaml(recipe), encoding="utf-8")
        assert load(path, name) == recipe, name


def test_names() -> None:
    (one,) = find("mega/table2/text/mega_chunk")
    assert one.name == "mega/table2/text/mega_chunk" and one.updates == 25000 and one.gpus == 1
    assert find("table2/text") == [recipe for recipe in find("mega/table2") if recipe.cell["task"] == "text"]
    assert find(str(FOLDER / "mega/table2/text/mega_chunk.yaml")) == [one]
    assert len(find_all(["table2", "mega/table2/text"])) == len(find("table2"))
    assert find_all([]) == list(catalogue().values())
    for names, paper in (("table4", "mega"), ("megalodon/table4", "megalodon")):  # of both papers
        assert {recipe.name.split("/")[0] for recipe in find(names)} == {paper}
    assert without_recipe() and not catalogue().keys() & without_recipe().keys()
    for name in ("table", "", "mega/table2/text/mega_"):
        with pytest.raises(RecipeError, match="is unknown: give "):
            find(name)


FAIRSEQS = ("transformer", "transformer_lm_wiki103")  # architectures of fairseq itself
WITHOUT_PRESET = (*FAIRSEQS, "transformer_lm")  # fairseq's models: presets are of ours


@pytest.mark.parametrize("name", FAIRSEQS)
def test_baselines_of_fairseq_have_all_options(name: str) -> None:
    """The recipe has every value that fairseq's architecture sets, except for the revised ones."""
    values = Namespace()
    ARCH_CONFIG_REGISTRY[name](values)
    for recipe in (recipe for recipe in catalogue().values() if recipe.preset == name):
        model = {key: value for key, value in recipe.config["model"].items() if key != "_name"}
        revised = (
            {"share_all_embeddings", "attention_dropout", "activation_dropout"} if name == "transformer" else set()
        )
        assert {key for key, value in model.items() if getattr(values, key) != value} == revised


def test_a_recipe_is_complete() -> None:
    """A recipe changes nothing of its preset but what tells it from others of its table or figure."""
    free = {"encoder_chunk_size", "encoder_n_dim", "attention_activation_fn"}
    of_recall = {"decoder_chunk_size", "decoder_n_dim", "decoder_ffn_embed_dim", "decoder_embed_dim"}
    for name, recipe in catalogue().items():
        values = {} if recipe.preset in WITHOUT_PRESET else preset(recipe.preset)
        changed = {key for key, value in values.items() if recipe.config["model"][key] != value}
        assert changed <= (of_recall if recipe.report == "recall" else free), (name, changed)
        assert recipe.config["optimization"]["lr"] == recipe.rates[:1] or not recipe.rates, name
        assert recipe.seeds and recipe.source and recipe.machine, name


def test_data_sets_have_folders_of_their_own(tmp_path: Path) -> None:
    """A miniature is not taken for the data set that it is a part of, wherever the data lie."""
    for choices in (Choices(tmp_path, smoke=True), Choices(tmp_path, data=Path("data")), Choices(tmp_path)):
        found = [data.folder for data in data_of(find_all([]), choices).values()]
        assert len(set(found)) == len(found)


PUBLISHED = {  # batch per step x accumulation x GPUs, norm, rate, decay, dropout, warm-up, updates, power
    "listops/mega": (64, 1, 1, "layernorm", 0.001, 0.01, 0.1, 3000, 90000, 1.0),
    "text/mega": (25, 2, 1, "scalenorm", 0.004, 0.01, 0.1, 10000, 25000, 1.0),
    "retrieval/mega": (8, 8, 1, "scalenorm", 0.003, 0.04, 0.1, 10000, 91960, 1.0),
    "image/mega": (50, 1, 1, "batchnorm", 0.01, 0.02, 0.0, 9000, 180000, 1.0),
    "pathfinder/mega": (128, 1, 1, "batchnorm", 0.01, 0.01, 0.0, 50000, 250000, 1.0),
    "pathx/mega": (2, 8, 8, "syncbatchnorm", 0.01, 0.01, 0.0, 25000, 125000, 2.0),
    "speech/base": (20, 1, 1, "batchnorm", 0.01, 0.01, 0.0, 10000, 250000, 1.0),
    "speech/big": (20, 1, 1, "batchnorm", 0.008, 0.01, 0.0, 10000, 250000, 1.0),
}


@pytest.mark.parametrize("cell", PUBLISHED)
def test_published_settings(cell: str) -> None:
    config = catalogue()[f"mega/{'table4' if 'speech' in cell else 'table2'}/{cell}"].config
    schedule, optimization = config["lr_scheduler"], config["optimization"]
    found = (
        *(config["dataset"]["batch_size"], optimization["update_freq"][0]),
        *(config["distributed_training"]["distributed_world_size"], config["model"]["normalization_type"]),
        *(optimization["lr"][0], config["optimizer"]["weight_decay"], config["model"]["dropout"]),
        *(schedule["warmup_updates"], optimization["max_update"], schedule["warmup_power"]),
    )
    assert found == PUBLISHED[cell]
    assert optimization["clip_norm"] == 1.0 and schedule["end_learning_rate"] == 0.0


def test_every_table_has_a_script() -> None:
    """A table or figure of recipes has a script that names it."""
    scripts = (FOLDER.parents[2] / "scripts").glob("mega*_*.sh")
    named = {words_of(script.name)[1] for script in scripts if "score_checkpoint" not in script.read_text()}
    papers = ("mega/", "megalodon/")
    tables = {"/".join(name.split("/")[:2]) for name in catalogue() if name.startswith(papers)}
    assert named == tables and all(find(table) for table in tables)


@pytest.mark.parametrize(
    "name",
    ["mega/table2/text/mega_chunk", "mega/table5/enwik8/mega", "mega/table7/en-de/mega_laplace", "quickstart/lm"],
)
def test_the_line_that_is_printed_is_the_runners(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the published number of GPUs, but for the folder of its checkpoints and the form of the precision."""
    recipe = catalogue()[name]
    run = plan(recipe, recipe.seeds[0], Path(recipe.config["task"]["data"]), "", Choices(tmp_path, gpus=recipe.gpus))
    started = run.train_arguments()
    started[started.index("--save-dir") + 1] = recipe.config["checkpoint"]["save_dir"]
    assert main([name, "--print"]) == 0
    program, *printed = shlex.split(capsys.readouterr().out)
    assert program == "fairseq-train" and printed[:2] == ["--user-dir", "fairseq_mega"]
    assert shlex.join([program, *printed]) == line_of(recipe)
    assert printed[2 : 2 + len(started) - 2] == without_user_dir(started)


@pytest.mark.parametrize(
    ("name", "capability", "option"),
    [
        ("quickstart/lm", (9, 0), ["--precision", "auto"]),
        ("mega/table5/enwik8/mega", None, []),
        ("mega/table5/enwik8/mega", (7, 0), []),
        ("mega/table5/enwik8/mega", (9, 0), ["--precision", "tf32"]),
    ],
)
def test_the_line_that_is_printed_has_the_runners_precision(
    name: str, capability: Any, option: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproducing, "visible_gpus", lambda: int(capability is not None))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: capability is not None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    words = shlex.split(line_of(catalogue()[name]))
    assert words[-len(option) :] == option if option else "--precision" not in words


def test_a_recipe_that_leaves_its_precision_to_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is measured once, and other recipes of the same command keep their own."""
    quick, other = catalogue()["quickstart/lm"], catalogue()["mega/table5/enwik8/mega"]
    found = iter(["bf16", "bf16", "fp32"])
    monkeypatch.setattr(training.precision, "choose", lambda *given: training.precision.Choice(next(found), "fast"))
    choices = training.with_automatic(Choices(tmp_path / "out"), [other, quick], begun=False)
    assert choices.automatic == "bf16" and not (tmp_path / "out").exists()
    for _ in range(2):
        choices = training.with_automatic(Choices(tmp_path / "out"), [other, quick], begun=True)
        for recipe, flags, name in ((quick, {"--amp", "--bf16"}, "bf16"), (other, set(), "fp32")):
            job = plan(recipe, 1, tmp_path, "", choices)
            assert {"--amp", "--bf16"} & set(job.train_arguments()) == flags
            assert job.precision == choices.conditions(recipe)["precision"] == name
    asked = Choices(tmp_path / "out", precision="fp32")
    assert training.with_automatic(asked, [quick], begun=True) == asked


def test_a_tiny_form_has_the_options_of_the_recipe() -> None:
    """Its model is a preset, no larger than the recipe's."""
    for name, recipe in catalogue().items():
        tiny = copy.deepcopy(recipe.config)
        shrink(tiny, recipe.evaluate["kind"])
        model, own = tiny["model"], recipe.config["model"]
        assert model.keys() == own.keys(), name
        assert not [option for option in model if type(own[option]) is int and model[option] > own[option]], name
        for option, value in toy(own["_name"]).items():
            if own.get(option) is not None and option not in (*OF_DATA, "encoder_layers"):
                assert model[option] == min(value, own[option]), name
        assert model.get("encoder_layers", 1) <= 2 and model.get("decoder_layers", 1) <= 2, name
