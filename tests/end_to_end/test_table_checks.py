"""The scripts of the tables check data, dependencies and settings before the first training starts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable

import pytest

from tests.support import lra_data
from tests.support.helpers import REPOSITORY

TRAINED = "the stand-in trains nothing"


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment in which every training fails at once, after saying what it was called with."""
    binaries = tmp_path / "environment" / "bin"
    binaries.mkdir(parents=True)
    refuse = f'echo "$*" >>"{tmp_path}/trained"; echo "{TRAINED}"; exit 1'
    python = f'case " $* " in *" fairseq_mega.cli.lra_results train "*) {refuse} ;; esac\nexec "{sys.executable}" "$@"'
    programs = {"python": python, "fairseq-train": refuse, "fairseq-mega-train": refuse}
    programs["fairseq-preprocess"] = f'exec "{sys.executable}" -m fairseq_cli.preprocess "$@"'
    for name, text in programs.items():
        (binaries / name).write_text(f"#!/bin/bash\n{text}\n")
        (binaries / name).chmod(0o755)
    return binaries.parent


@pytest.fixture
def run(environment: Path, tmp_path: Path) -> Callable[..., str]:
    """Run a script of ``checkout``, by default this one, which must fail; returns its output."""

    def run_script(script: str, *options: object, checkout: Path = REPOSITORY, **variables: str) -> str:
        command = ["bash", str(checkout / "scripts" / script), "--skip-setup", *map(str, options)]
        shown = {"PYTHONWARNINGS": "ignore", "FAIRSEQ_MEGA_VENV": str(environment), "PYTHONPATH": str(checkout)}
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **shown, **variables})
        assert done.returncode != 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run_script


def trained(tmp_path: Path) -> str:
    """The command lines of the trainings that were started."""
    return (tmp_path / "trained").read_text() if (tmp_path / "trained").exists() else ""


def test_data_of_all_tasks_come_first(run: Callable[..., str], tmp_path: Path) -> None:
    """Table 2 with its defaults says at once that Retrieval's data are not there, before ListOps is generated."""
    output = run("mega_table2_lra.sh", "--gpus", 0, "--out", tmp_path / "out", "--data", tmp_path / "data")
    assert "those of --task retrieval cannot be fetched alone" in output
    assert f"fairseq-mega-prepare aan --tsv-dir DIR --out {tmp_path}/data/retrieval" in output
    assert not trained(tmp_path) and not (tmp_path / "data").exists()


def test_incomplete_data_come_first(run: Callable[..., str], tmp_path: Path) -> None:
    """A test split that is missing is found before the training of another task."""
    for name in ("image", "pathfinder"):
        lra_data.write_images(tmp_path / "data" / name, pixels=1024)
    (tmp_path / "data" / "pathfinder" / "input" / "test.src").unlink()
    options = ["--gpus", 0, "--out", tmp_path / "out", "--data", tmp_path / "data", "--task", "image,pathfinder"]
    output = run("mega_table2_lra.sh", *options)
    assert "--task pathfinder in" in output and "input/test.src is missing" in output
    assert not trained(tmp_path)
    shutil.copy(tmp_path / "data" / "pathfinder" / "input" / "valid.src", tmp_path / "data/pathfinder/input/test.src")
    assert TRAINED in run("mega_table2_lra.sh", *options)
    assert f"{tmp_path}/data/image" in trained(tmp_path)


def test_settings_of_all_cells_come_first(run: Callable[..., str], tmp_path: Path) -> None:
    """A later run that was begun with another rate ends the command before an earlier one is trained for days."""
    data = lra_data.write_images(tmp_path / "image", pixels=1024)
    options = ["--gpus", 0, "--out", tmp_path / "out", "--data", data, "--task", "image", "--models", "transformer"]
    assert TRAINED in run("mega_table2_lra.sh", *options, "--seeds", 2)
    before = trained(tmp_path)
    output = run("mega_table2_lra.sh", *options, "--seeds", "1,2", "--transformer-lr", 0.002)
    assert "image.transformer.seed2 was begun with other settings" in output
    assert trained(tmp_path) == before and not (tmp_path / "out" / "runs" / "image.transformer.seed1").exists()
    # The batch norm's statistics come from the examples of a step.
    mega = [*options[:-1], "mega", "--seeds", 1]
    assert TRAINED in run("mega_table2_lra.sh", *mega)
    assert "begun with other settings" in run("mega_table2_lra.sh", *mega, "--per-step", 25)


FIGURES = ["mega_figure4_ablations.sh", "mega_figure5_stability.sh", "mega_figure6_context.sh"]


@pytest.mark.parametrize("script", FIGURES)
def test_plots_are_possible(run: Callable[..., str], tmp_path: Path, script: str) -> None:
    """Without matplotlib a figure says so before its models are trained."""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "matplotlib.py").write_text("raise ImportError\n")
    where = "--work-dir" if "figure6" in script else "--out"
    path = f"{tmp_path / 'hidden'}:{REPOSITORY}"
    assert "needs matplotlib" in run(script, "--smoke", where, tmp_path / "out", PYTHONPATH=path)
    assert not trained(tmp_path) and not (tmp_path / "out" / "runs").exists()


def made_up_corpora(folder: Path) -> None:
    """The data of Table 5 in the folders that their scripts write to."""
    for script, name in (("prepare_wikitext103.sh", "wikitext-103"), ("prepare_enwik8.sh", "enwik8")):
        command = ["bash", str(REPOSITORY / "scripts" / script), "--skip-setup", "--smoke", "--out", str(folder / name)]
        variables = {"FAIRSEQ_MEGA_VENV": sys.prefix, "PYTHONWARNINGS": "ignore"}
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, **variables})


@pytest.mark.slow
def test_table5_takes_the_data_from_where_they_are_made(run: Callable[..., str], tmp_path: Path) -> None:
    """Both default folders are the same, also in a checkout whose path has a space."""
    checkout = tmp_path / "a b"
    checkout.mkdir()
    for name in ("scripts", "fairseq_mega"):
        (checkout / name).symlink_to(REPOSITORY / name)
    made_up_corpora(checkout / "outputs")
    for task, data in (("wikitext103", "wikitext-103"), ("enwik8", "enwik8")):
        assert TRAINED in run("mega_table5_lm.sh", "--gpus", 0, "--task", task, checkout=checkout)
        assert f"{checkout}/outputs/{data}/data-bin --task" in trained(tmp_path)


@pytest.mark.slow
def test_table5_looks_at_both_tasks_first(run: Callable[..., str], tmp_path: Path) -> None:
    """Data and settings of enwik8 are there before WikiText-103 is trained."""
    made_up_corpora(tmp_path / "data")
    options = ["--gpus", 0, "--work-dir", tmp_path / "work", "--data-dir", tmp_path / "data"]
    assert TRAINED in run("mega_table5_lm.sh", *options, "--task", "enwik8", "--max-update", 6)
    before = trained(tmp_path)
    output = run("mega_table5_lm.sh", *options, "--max-update", 9)
    assert "enwik8.seed1 was begun with other settings" in output and trained(tmp_path) == before
    shutil.rmtree(tmp_path / "data" / "enwik8")
    (tmp_path / "data" / "enwik8").write_text("")
    output = run("mega_table5_lm.sh", *options, "--seed", 2)
    assert "enwik8 cannot be made" in output and trained(tmp_path) == before


def test_table7_looks_at_all_runs_first(run: Callable[..., str], tmp_path: Path) -> None:
    """A run that was begun with other settings is noticed before the archives are fetched for the ones before it."""
    begun = tmp_path / "work" / "runs" / "de-en.laplace.seed3"
    begun.mkdir(parents=True)
    (begun / "settings").write_text("--max-update: 5000\n")
    options = ["--gpus", 0, "--no-download", "--work-dir", tmp_path / "work", "--seeds", "1,3"]
    output = run("mega_table7_wmt16.sh", *options)
    assert "de-en.laplace.seed3 was begun with other settings" in output and "> --max-update: 500000" in output
    assert "fetch: begins" not in output and [path.name for path in begun.parent.iterdir()] == [begun.name]
