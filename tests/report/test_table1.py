"""Table 1: the paper's summary, and under it what was measured for the tables that it summarises."""

from pathlib import Path
from typing import Any, Dict

import pytest

from fairseq_mega.lab.evaluate.lra_runs import LRA, TASKS
from fairseq_mega.lab.recipes.paper_values import without_recipe
from fairseq_mega.lab.report.command import main
from fairseq_mega.lab.report.table1 import paper
from fairseq_mega.lab.reproduce.command import main as reproduce
from fairseq_mega.lab.runs.results import make_result, write_result


def test_the_paper() -> None:
    """MEGA (Ma et al., ICLR 2023), Table 1, typed once more; S4's other cells are empty there, too."""
    assert paper() == {
        "Transformer": ["59.24", "27.97", "18.66", "81.80", "not runnable"],
        "S4": ["85.86", "-", "20.95", "-", "97.50"],
        "MEGA": ["88.21", "29.18", "18.07", "82.31", "96.92"],
    }


def write(folder: Path, benchmark: str, label: str, scores: Dict[str, float], **settings: Any) -> None:
    settings = {"updates": 5, "published_updates": 5, "parameters": 7, "train_examples": 9, **settings}
    write_result(folder / f"{label}.json", make_result(benchmark, label, scores, 10, "command", 1, settings))


def rows(text: str) -> Dict[str, Dict[str, Any]]:
    lines = [
        line for line in text.splitlines() if line.startswith(("| Transformer", "| MEGA", "|   measured", "| meas"))
    ]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {
        before[0]: dict(zip(("lra", "bleu", "ppl", "images", "sc"), own[1:])) for before, own in zip(cells, cells[1:])
    }


def test_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, task in enumerate(LRA):
        about = {"task": task, "attention": TASKS[task].attention, "ema_dim": 16, "chunk": -1}
        good = {"best_valid_accuracy": 99.0}
        write(tmp_path, "lra", f"{task}.mega", {"test_accuracy": 80.0 + number, **good}, model="mega", **about)
        if task != "pathx":
            scores = {"test_accuracy": 50.0 + number, **good}
            write(tmp_path, "lra", f"{task}.transformer", scores, **{**about, "model": "transformer"})
    speech = {"task": "speech", "model": "mega-base", "attention": "laplace", "ema_dim": 16, "chunk": 1000}
    write(tmp_path, "lra", "speech", {"test_accuracy": 96.5, "best_valid_accuracy": 97.0}, **speech)
    translation = {"direction": "en-de", "model": "mega", "attention": "softmax", "checkpoint": "best"}
    write(tmp_path, "wmt16-newstest2014", "en-de.best", {"tokenized_bleu": 29.0, "sacrebleu": 28.0}, **translation)
    for segments, score in enumerate((18.5, 18.25), start=1):
        scores = {"perplexity": score, "tokens_per_second": 3.0}
        write(tmp_path, "table5", f"wikitext103.mega.{score}", scores, segments=segments)
    for model, epoch, top1 in (("mega", "best", 82.5), ("mega", "last", 82.25), ("deit_b", "last", 81.75)):
        write(tmp_path, "imagenet", f"{model}.{epoch}", {"top1_accuracy": top1}, model=model, checkpoint=epoch)
    assert main(["table1", str(tmp_path), "--format", "markdown"]) == 0
    found = rows(capsys.readouterr().out)
    assert found["MEGA, paper"] == {"lra": "82.50", "bleu": "29.00", "ppl": "18.25", "images": "82.25*", "sc": "96.50"}
    assert found["Transformer, paper"] == {"lra": "52.00", "bleu": "-", "ppl": "-", "images": "81.75*", "sc": "-"}


def test_nothing_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tmp_path.joinpath("results").mkdir()
    assert main(["table1", str(tmp_path / "results")]) == 0
    assert capsys.readouterr().out.count("not yet") == 2


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("table1", "is the summary of Tables"),
        ("mega/table1", "is the summary of Tables"),
        ("megalodon/table1", "--tasks megalodon_table1"),
        ("megalodon/table2", "fairseq-mega-qa"),
        *((name, number.instead) for name, number in without_recipe().items()),
    ],
)
def test_numbers_without_a_recipe_are_answered(name: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce([name, "--gpus", "0"]) == 1
    printed = capsys.readouterr().err
    assert said in printed and "has no recipe" in printed and len(printed.splitlines()) == 1
