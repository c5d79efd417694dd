"""The scripts of the language modelling tables, in their --smoke form."""

import os
import re
import subprocess

import pytest

from fairseq_mega.lab.report import command
from fairseq_mega.lab.reproduce import command as reproducing
from fairseq_mega.lab.runs.results import make_result, read_results, write_result
from tests.support import grids, in_process
from tests.support.helpers import REPOSITORY, random_sentences, run_fairseq
from tests.support.in_process import in_process as no_processes  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_processes")]


def run(script, *options, status=0):
    """Run a script in this process, assert its status and return its output."""
    done = in_process.reproduce(script, *options)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def run_by_bash(script, *options, status=0):
    command = ["bash", str(REPOSITORY / "scripts" / script), "--skip-setup", *map(str, options)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.exhaustive  # tests/reproduce/test_smoke.py trains both
def test_table5_and_figure6(tmp_path):
    """Both tasks of Table 5, stages skipped when repeated, and Figure 6 with the model that is there already."""
    work = tmp_path / "work"
    output = run("mega_table5_lm.sh", "--smoke", "--work-dir", work)
    assert "MEGA, measured (K = 10, chunk 32)" in output and "MEGA, measured (K = 50, chunk 32)" in output
    assert "18.07" in output and "1.02" in output
    assert "Transformer, measured (context of at least 16)" in output
    again = run("mega_table5_lm.sh", "--smoke", "--work-dir", work)
    assert again.count("done before, skipped") == 6  # the data of both are there: no stage at all
    results = read_results(work / "results", "table5-smoke")
    labels = ["enwik8.mega.seed1", "wikitext103.mega.seed1", "wikitext103.transformer.seed1"]
    assert [result["label"].rpartition(".")[0] for result in results] == labels

    output = run("mega_figure6_context.sh", "--smoke", "--work-dir", work)
    assert "train: begins" not in output and (work / "figure6.png").stat().st_size > 10000
    found = read_results(work / "results", "figure6-smoke")
    assert {(row["settings"]["segments"], row["settings"]["chunk_size"]) for row in found} == {
        *((k, 16) for k in (20, 4, 1, 2)),
        *((2, c) for c in (8, 32)),
    }
    assert len({row["examples"] for row in found}) == 1

    # A checkpoint of somewhere else, with other panels.
    (folder,) = (work / "runs").glob("wikitext103.mega.*")
    path = [
        "--path",
        folder / "checkpoints" / "checkpoint_best.pt",
        "--data",
        work / "data" / "wikitext-103" / "data-bin",
    ]
    few = ["--set", "evaluate.contexts=[{segments: [2], chunk_size: [16]}, {segments: [1], chunk_size: [16]}]"]
    output = run("mega_figure6_context.sh", "--smoke", "--work-dir", tmp_path / "other", *path, *few)
    assert (tmp_path / "other" / "figure6" / "figure6.png").stat().st_size > 10000 and len(points(output)) == 1


def points(output):
    """The lines of Figure 6 on a chunk of 16."""
    return re.findall(r"^ +16 +[\d.]+$", output, re.M)


def test_a_second_seed_is_another_row(tmp_path):
    """Scores of a seed are its own; fewer updates than before are not taken for more."""
    options = ["--smoke", "--work-dir", tmp_path]
    first = run("mega_table5_lm.sh", *options, "--where", "task=enwik8", "--max-update", 6)
    second = run("mega_table5_lm.sh", *options, "--where", "task=enwik8", "--max-update", 6, "--seed", 2)
    rows = {line for line in second.splitlines() if "MEGA, measured (K = 50" in line}
    assert {", seed 1 " in line for line in rows} == {True, False} and len(rows) == 2
    # Its score and where that comes from.
    assert [line in second for line in first.splitlines() if "seed 1 " in line] == [True, True]
    found = read_results(tmp_path / "results", "table5-smoke")
    assert sorted((result["label"].split(".")[2], result["seed"]) for result in found) == [("seed1", 1), ("seed2", 2)]
    assert found[0]["scores"]["bits_per_token"] != found[1]["scores"]["bits_per_token"]
    assert {result["settings"]["max_update"] for result in found} == {6}
    longer = run("mega_table5_lm.sh", *options, "--where", "task=enwik8", "--max-update", 9)
    (row,) = [line for line in longer.splitlines() if "MEGA, measured (K = 50" in line]
    assert row.split()[-1] == "9" and "train: begins" in longer


def test_compare(tmp_path):
    """Text of one's own, in the folder of fairseq-preprocess; other contexts are other scores of the same training."""
    text = tmp_path / "text"
    text.mkdir()
    arguments = ["--only-source", "--destdir", text / "data-bin"]
    for seed, (split, count) in enumerate((("train", 300), ("valid", 30), ("test", 60))):
        lines = "".join(f"{line}\n" for line in random_sentences(count, seed))
        (text / f"{split}.txt").write_text(lines)
        arguments += [f"--{split}pref", text / f"{split}.txt"]
    run_fairseq("preprocess", arguments)
    options = ["--data", text / "data-bin", "--out", tmp_path / "out", "--smoke", "--set", "optimization.lr=0.002"]
    options += ["--where", "name=transformer,mega"]
    for corpus in ("wikitext2", "bytes"):
        done = in_process.call(reproducing.main, f"comparison/{corpus}", "--gpus", 0, *options)
        models = tuple(f"| {corpus}: {model}, learning rate 0.002, seed 1 |" for model in ("mega", "transformer"))
        rows = [line for line in done.stdout.splitlines() if line.startswith(models)]
        assert done.returncode == 0 and len(rows) == 7, done.stdout + done.stderr
        assert "SMOKE RUN" in done.stdout
    contexts = "mega*:evaluate.contexts=[{exact_contexts: [128, 256, 1024, 4096], segments: [1]}]"
    exact = run_by_bash("compare_language_models.sh", *options, "--set", contexts)
    assert exact.count(".train: done before") == 2 and exact.count("evaluate: begins") == 1
    assert "Warning" not in exact  # of hydra, about fairseq
    assert len(list((tmp_path / "out" / "results").glob("language-models.wikitext2.mega.*-test-x*.json"))) == 4


@pytest.mark.parametrize(
    "script, options, message",
    grids.mostly_exhaustive(
        [
            (
                "mega_table5_lm.sh",
                ["--where", "task=pg19"],
                "no recipe has the task 'pg19': choose from wikitext103, enwik8",
            ),
            ("mega_table5_lm.sh", ["--gpus", "x"], "--gpus: 'x'"),
            ("mega_figure6_context.sh", ["--path", "/no/file"], "/no/file does not exist"),
            ("megalodon_table6_lra.sh", ["--where", "name=mega"], "choose from megalodon, megalodon_chunk"),
        ],
        kept=1,
    ),
)
def test_bad_options(script, options, message):
    assert message in run(script, *options, status=1)


@pytest.mark.parametrize(
    "options, message",
    grids.mostly_exhaustive(
        [
            (["--unit", "letters"], "unknown option '--unit'"),
            (["--where", "name=lstm"], "no recipe has the name 'lstm': choose from mega, "),
        ],
        kept=1,
    ),
)
def test_bad_options_of_comparisons(options, message):
    assert message in run_by_bash("compare_language_models.sh", *options, status=1)


def test_tables_and_plots_say_what_is_missing(tmp_path, capsys):
    assert command.main(["table5", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("not yet") == 2
    assert command.main(["table5", str(tmp_path / "no")]) == 1
    settings = {"segments": 10, "chunk_size": 2048, "mean_segment": 24000.0}
    result = make_result("figure6", "mega", {"perplexity": 18.0}, 5, "command", settings=settings)
    write_result(tmp_path / "one.json", result)
    write_result(tmp_path / "other.json", {**result, "label": "other"})
    options = ["figure6", str(tmp_path), "--output", str(tmp_path / "plot.png"), "--segments", "10", "--chunk"]
    assert command.main([*options, "2048"]) == 1
    assert "several models, mega (None), other (None)" in capsys.readouterr().err
    options[2:2] = ["--label", "mega"]
    assert command.main([*options, "1024"]) == 1
    assert "--chunk 1024" in capsys.readouterr().err
    assert command.main([*options, "2048"]) == 0
    assert (tmp_path / "plot.png").exists()
