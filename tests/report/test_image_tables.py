"""Table 6, and MEGALODON's Table 4: rows of both epochs under the paper's, and what cannot be compared with it."""

from pathlib import Path
from typing import Any, List

import pytest

from fairseq_mega.lab.report.command import main
from fairseq_mega.lab.report.image_tables import MEGALODON4, TABLE6
from fairseq_mega.lab.report.lra_cells import INTERPRETATION
from fairseq_mega.lab.runs.results import make_result, write_result


def write(folder: Path, name: str, top1: float, seed: int = 1, examples: int = 50_000, **settings: Any) -> None:
    model, checkpoint = name.split(".")
    about = {"updates": 5, "published_updates": 5, "parameters": 7654, "train_examples": 1_281_167, **settings}
    about.update(model=model, checkpoint=checkpoint)
    result = make_result("imagenet", name, {"top1_accuracy": top1}, examples, "command", seed, about)
    write_result(folder / f"{name}.{seed}.json", result)


def cells(text: str) -> List[List[str]]:
    lines = [
        line
        for line in text.splitlines()
        if line.startswith("|   measured") or ", paper |" in line or ", quoted |" in line
    ]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_paper() -> None:
    """MEGA (Ma et al., ICLR 2023), Table 6, and MEGALODON (Ma et al., NeurIPS 2024), Table 4, typed once more."""
    want = {"ResNet-152": "78.3", "ViT-B, 384 pixels": "77.9", "DeiT-B": "81.80", "MEGA": "82.31"}
    assert {name: values[1] for name, values in TABLE6.rows.items()} == want
    rows = {"ResNet-152": 78.3, "ViT-B, 384 pixels": 77.9, "DeiT-B": 81.8, "MEGA": 82.3, "MEGALODON": 83.1}
    paper = {name: round(float(values[1]), 1) for name, values in MEGALODON4.rows.items()}
    assert paper == rows and MEGALODON4.rows["MEGALODON"][0] == "90M"


def test_measured_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "mega.best", 82.0)
    write(tmp_path, "mega.best", 83.0, seed=2)
    write(tmp_path, "mega.last", 81.5)
    assert main(["table6", str(tmp_path), "--format", "markdown"]) == 0
    printed = capsys.readouterr().out
    assert cells(printed)[2:] == [
        ["DeiT-B, paper", "86M", "81.80"],
        ["measured", "-", "not yet"],
        ["MEGA, paper", "90M", "82.31"],
        ["measured, best epoch", "7,654", "82.50 ±0.71"],
        ["measured, last epoch", "7,654", "81.50"],
    ]
    assert "not comparable" not in printed


@pytest.mark.parametrize("settings", [{"examples": 49_999}, {"train_examples": 1_281_166}, {"updates": 4}])
def test_what_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str], settings: Any) -> None:
    write(tmp_path, "deit_b.last", 80.0, **settings)
    assert main(["table6", str(tmp_path), "--format", "markdown"]) == 0
    printed = capsys.readouterr().out
    assert ["measured, last epoch", "7,654", "80.00*"] in cells(printed) and "* fewer updates" in printed


def test_megalodon(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same folder of results, of which each table takes its models; what is ours is said."""
    write(tmp_path, "mega.last", 82.0)
    write(tmp_path, "megalodon.best", 83.0)
    write(tmp_path, "megalodon.last", 82.5, updates=4)
    assert main(["megalodon-table4", str(tmp_path), "--format", "markdown"]) == 0
    printed = capsys.readouterr().out
    assert cells(printed)[3:] == [
        ["MEGA, paper", "90M", "82.31"],
        ["MEGALODON, paper", "90M", "83.10"],
        ["measured, best epoch", "7,654", "83.00"],
        ["measured, last epoch", "7,654", "82.50*"],
    ]
    assert INTERPRETATION in printed and "82.00" not in printed
    assert main(["table6", str(tmp_path), "--format", "markdown"]) == 0
    printed = capsys.readouterr().out
    assert "82.00" in printed and "MEGALODON" not in printed and "our interpretation" not in printed


def test_nothing_yet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "megalodon.last", 83.0)
    assert main(["table6", str(tmp_path)]) == 1
    message = "has no result of imagenet by deit_b or mega; run scripts/mega_table6_imagenet.sh first"
    assert message in capsys.readouterr().err


def test_changed_settings_have_rows_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A training with --set, or with options for fairseq-train, is no mean with others, and says what was changed."""
    write(tmp_path, "mega.last", 82.0)
    write(tmp_path, "mega.last", 60.0, seed=2, set={"model.dropout": "0.5"})
    write(tmp_path, "mega.last", 70.0, seed=3, extra="--sentence-avg")
    assert main(["table6", str(tmp_path), "--format", "markdown"]) == 0
    printed = capsys.readouterr().out
    assert cells(printed)[-3:] == [
        ["measured, last epoch", "7,654", "82.00"],
        ["measured, with --set model.dropout=0.5, last epoch", "7,654", "60.00"],
        ["measured, with -- --sentence-avg, last epoch", "7,654", "70.00"],
    ]
    assert "trained with --set model.dropout=0.5" in printed and "trained with -- --sentence-avg" in printed
