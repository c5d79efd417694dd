"""--checkpoint: weights that were trained elsewhere, from an archive on a server to the table."""

import io
import json
import re
import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
from fairseq import options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_mega.compat.files.settings import Role, options_of
from fairseq_mega.convert import convert_checkpoint
from fairseq_mega.convert.options import flat_options
from fairseq_mega.lab.inspect.parts import parameters_by_part, read
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.command_line import arguments, without_user_dir
from fairseq_mega.lab.recipes.recipe import RecipeError
from fairseq_mega.lab.reproduce import weights
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.data import data_of
from fairseq_mega.lab.reproduce.settings import Choices
from fairseq_mega.lab.runs.results import read_results
from fairseq_mega.models import on_paper
from fairseq_mega.models.cost import parameters
from tests.support import published_images
from tests.support.breaking_server import Server
from tests.support.in_process import in_process  # noqa: F401

GOLDENS = Path(__file__).parent.parent / "goldens"
TEXT, LANGUAGE, IMAGES = "mega/table2/text/mega_chunk", "mega/table5/enwik8/mega", "mega/table6/imagenet/mega"
Files = Dict[str, Any]  # contents of an archive by their paths: checkpoints, and bytes


def published(name: str, symbols: int, chunk: int = 16) -> Dict[str, Any]:
    """A checkpoint of the published code, with a table of that many tokens, as after some updates."""
    found = torch.load(GOLDENS / f"{name}.official.pt", weights_only=False)
    for key, tensor in found["model"].items():
        if "embed_tokens" in key or "embed_out" in key or "output_projection" in key:
            found["model"][key] = tensor.repeat(-(-symbols // len(tensor)), 1)[:symbols].clone()
        if name == "lra_classifier" and key.endswith("rel_pos_bias"):
            found["model"][key] = tensor.repeat(9)[: 2 * (64 if chunk < 0 else chunk) - 1].clone()
    if name == "lra_classifier":
        found["args"].chunk_size = chunk
    return after_updates(found)


def after_updates(checkpoint: Dict[str, Any]) -> Dict[str, Any]:
    """Return a published checkpoint with the history of a training."""
    history = {"criterion_name": "X", "optimizer_name": "FairseqAdam", "lr_scheduler_state": {"best": 1.0}}
    checkpoint["optimizer_history"] = [{**history, "num_updates": 25_000}]
    return checkpoint


def with_classes(checkpoint: Dict[str, Any], classes: int) -> Dict[str, Any]:
    """Return a published classifier of two classes with more of them."""
    tensor = checkpoint["model"]["sentence_projection_layer.weight"]
    checkpoint["model"]["sentence_projection_layer.weight"] = torch.cat([tensor, tensor])[:classes].clone()
    checkpoint["args"].sentence_class_num = classes
    return checkpoint


def pack(path: Path, files: Files) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as container:
        for name, content in files.items():
            if isinstance(content, dict):
                saved = io.BytesIO()
                torch.save(content, saved)
                content = saved.getvalue()
            container.writestr(name, content)
    return path


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs that tests share."""
    return tmp_path_factory.mktemp("scored weights")


def symbols_of(recipe: str, out: Path) -> int:
    """Rows of a model's table of embeddings for the data that a smoke run of a recipe makes."""
    choices = Choices(out.resolve(), smoke=True)
    (data,) = data_of([catalogue()[recipe]], choices).values()
    data.make()
    names = [data.folder / name for name in ("src-bin/dict.txt", "data-bin/dict.txt", "data-bin/dict.en.txt")]
    lengths = [len(Dictionary.load(str(path))) for path in names if path.exists()]
    return lengths[0] + (recipe == TEXT) if lengths else 0  # the task has a token in front of a text


def archive_of(recipe: str, out: Path) -> Files:
    """Return files of an archive with the weights of a recipe, below a folder and among other files."""
    symbols = symbols_of(recipe, out)
    if recipe == IMAGES:
        found = published_images.checkpoint()
        for name in ("head.weight", "head.bias"):  # of the four invented classes
            found["model"][name] = found["model"][name].repeat_interleave(2, 0)[:4]
        return {"mega.imagenet/checkpoint.pth": found}
    if recipe == LANGUAGE:
        return {"enwik8/checkpoint_best.pt": published("language_model", symbols), "enwik8/train.log": b"..."}
    text = published("lra_classifier", symbols, 128)
    return {
        "mega.lra/README": b"...",
        "mega.lra/text/checkpoint_best.pt": text,
        "mega.lra/text/checkpoint_last.pt": text,
        "mega.lra/listops/checkpoint_best.pt": published("lra_classifier", symbols + 1),
    }


def score(recipe: str, out: Path, *words: object) -> int:
    return main([recipe, *map(str, words), "--smoke", "--workers", "1", "--out", str(out)])


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize(
    ("recipe", "archive", "score_name", "row"),
    [
        (TEXT, "mega.lra.zip", "test_accuracy", "  authors' weights{} +- +{score:.2f} +-"),
        (LANGUAGE, "enwik8.zip", "bits_per_token", "  MEGA, authors' weights{} .* {score:.3f} "),
        (IMAGES, "mega.imagenet.zip", "top1_accuracy", r"  authors' weights{} +[\d,]+ +{score:.2f}"),
    ],
    ids=["classifier", "language model", "images"],
)
def test_from_the_server_to_the_table(
    recipe: str,
    archive: str,
    score_name: str,
    row: str,
    out: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = archive_of(recipe, out)
    content = pack(tmp_path / "made.zip", files).read_bytes()
    with Server.running(content) as server:
        monkeypatch.setattr(weights, "HOST", server.url.rpartition("/")[0])
        server.breaks = [1000, 2000]
        words = ("--checkpoint", "published", "--root", tmp_path)
        assert [score(recipe, out, *words) for _ in range(3)] == [1, 1, 0]
        assert server.ranges == [None, "bytes=1000-", "bytes=3000-"]
    printed = capsys.readouterr()
    assert "train: begins" not in printed.err and "SHA-256" in printed.err and ", in the recipe " in printed.err
    assert "data: invented" in printed.err
    found = [one for one in read_results_of(out) if one["settings"].get("recipe") == recipe]
    (told,) = {json.dumps(one["settings"]["weights"]) for one in found}
    kept = json.loads(told)
    assert kept["authors"] and f"/{archive}, " in kept["source"]
    assert kept["updates"] == (None if recipe == IMAGES else 25_000)
    line = row.format(" of other settings, scored here", score=found[0]["scores"][score_name])
    assert re.search(line, printed.out), printed.out
    # The very weights, and nothing is done again without the server.
    if recipe == TEXT:
        (saved,) = (out / "runs").glob("text.mega.*c128.weights.*/checkpoints/checkpoint_best.pt")
        wanted = convert_checkpoint(files["mega.lra/text/checkpoint_best.pt"], "")["model"]
        there = torch.load(saved, weights_only=False)["model"]
        assert all(torch.equal(there[name], tensor) for name, tensor in wanted.items())
    assert score(recipe, out, "--checkpoint", "published", "--root", tmp_path) == 0
    assert "begins" not in capsys.readouterr().err


def test_one_checkpoint_of_a_folder_is_scored(tmp_path: Path) -> None:
    """One in a folder of the recipe's data set, the best one; the user names one of several."""
    for name in ("aan/checkpoint_best.pt", "imdb/checkpoint_last.pt", "imdb/checkpoint_best.pt", "imdb/notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert weights.file_for(catalogue()[TEXT], tmp_path) == tmp_path / "imdb" / "checkpoint_best.pt"
    (tmp_path / "imdb" / "best.pt").touch()
    with pytest.raises(RecipeError, match=r"--checkpoint .*: imdb/best.pt, imdb/checkpoint_best.pt"):
        weights.file_for(catalogue()[TEXT], tmp_path)


@pytest.mark.parametrize(
    ("recipe", "given"),
    [
        ("mega/table2/text/s4d", "published"),
        ("miniature/text/mega", "absent.pt"),  # which reports the learning rates of trainings
    ],
)
def test_what_cannot_be_scored(recipe: str, given: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert score(recipe, tmp_path, "--checkpoint", given) == 1
    error = capsys.readouterr().err
    assert "--checkpoint" in error and recipe in error


OTHERS = {  # recipes of several models of a kind
    "classifier": ["mega/table2/text/mega", "mega/table2/text/s4d", "megalodon/table6/text/megalodon"],
    "images": ["mega/table6/imagenet/mega", "mega/table6/imagenet/deit_b"],
    "language model": [f"comparison/bytes/{name}" for name in ("mega", "megalodon", "transformer")],
}


def arch_of(recipe: str) -> str:
    return str(catalogue()[recipe].config["model"]["_name"])


@pytest.mark.parametrize("kind", OTHERS)
def test_weights_of_another_model_are_refused(kind: str, tmp_path: Path) -> None:
    """Those of a recipe's own model are taken, whichever it is; MEGA's do not stand for MEGALODON's."""
    for recipe in OTHERS[kind]:
        options = {**catalogue()[recipe].config["model"]}
        options.update(dict.fromkeys(options.keys() & {"encoder_layers", "decoder_layers"}, 1))  # a small file
        model, path = on_paper.build(options, 300).to_empty(device="cpu"), tmp_path / "a.pt"
        torch.save({"cfg": {"task": {}, "model": options}, "model": model.state_dict()}, path)
        own = catalogue()[recipe]
        differing = weights.differences(own, weights.read(own, path))
        assert all(line.startswith(("--encoder-layers 1,", "--decoder-layers 1,")) for line in differing), differing
        assert sum(count for _, count in parameters_by_part(read(path)["model"])) == parameters(model)
        for other in OTHERS[kind]:
            if other != recipe:
                with pytest.raises(ValueError, match=f"{arch_of(recipe)}, .* --arch {arch_of(other)}"):
                    weights.read(catalogue()[other], path)


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("mega/table2/text/mega", {"rel_pos_bias": "rotary", "encoder_chunk_size": 64, "dropout": 0.5}),
        ("mega/table6/imagenet/deit_b", {"encoder_attention_heads": 3}),
        ("comparison/bytes/megalodon", {"statistics_window": 6, "reset_at_document_ends": True}),
        ("comparison/bytes/transformer", {"activation_fn": "gelu"}),
    ],
)
def test_every_option_that_decides_a_score_is_compared(name: str, changes: Dict[str, Any]) -> None:
    """Those that a recipe leaves at their defaults, too; a training by the recipe differs in nothing."""
    recipe = catalogue()[name]
    words = without_user_dir(arguments(recipe.config, arch_of(name)))
    trained = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
    values = flat_options({"cfg": trained})
    assert weights.differences(recipe, {"args": Namespace(**values)}) == []
    changed = {"args": Namespace(**{**values, **changes})}
    told = [word for line in weights.differences(recipe, changed) for word in line.split()[:1]]
    assert {word[2:].replace("-", "_") for word in told} == changes.keys() - set(options_of(Role.TRAINING))


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_other_dictionaries_are_refused_and_tables_keep_trainings_apart(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    symbols = symbols_of(TEXT, out)
    torch.save(published("lra_classifier", symbols + 1), tmp_path / "other.pt")
    assert score(TEXT, out, "--checkpoint", tmp_path / "other.pt") == 1
    assert "failed" in capsys.readouterr().err
    torch.save(with_classes(published("lra_classifier", symbols, 128), 3), tmp_path / "classes.pt")
    assert score(TEXT, out, "--checkpoint", tmp_path / "classes.pt") == 1
    assert "failed" in capsys.readouterr().err and not list((out / "results").glob("*classes*"))
    for name, chunk in (("a b.pt", 16), ("c.pt", 128)):
        torch.save(published("lra_classifier", symbols, chunk), tmp_path / name)
        assert score(TEXT, out, "--checkpoint", tmp_path / name) == 0
    printed = capsys.readouterr().out.splitlines()
    rows = [line for line in printed if "scored here" in line and "authors" not in line]
    names = sorted(line.split(",")[0].strip() for line in rows)
    other = "of other settings"  # all have: the archive's is a toy, and no smoke run's
    assert names == [f"weights of {name} {other}" for name in ("a b.pt", "a b.pt", "c.pt")]  # c.pt: the second table's
    (of_c,) = [line for line in printed if line.startswith("c.pt, ")]
    assert all("--encoder-chunk-size 16, in" in line for line in printed if line.startswith("a b.pt, "))
    assert "--encoder-embed-dim 16, in" in of_c and "--encoder-chunk-size" not in of_c


def read_results_of(out: Path) -> List[Dict[str, Any]]:
    names = ("lra-smoke", "table5-smoke", "imagenet-smoke")
    return [result for name in names for result in read_results(out / "results", name)]
