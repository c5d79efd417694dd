"""Progress lines made from the output of fairseq commands."""

import io
import json
import sys
from pathlib import Path
from typing import Any

from fairseq_mega.cli.progress import Progress, copy_with_progress, parse_statistics
from tests.support.terminal import dialogue
from tests.support.tiny_trainings import Trainings


def logged(**statistics: Any) -> str:
    return f"2030-01-01 00:00:00 | INFO | train_inner | {json.dumps(statistics)}\n"


def test_statistics_are_found_in_a_line_and_other_lines_are_harmless() -> None:
    assert parse_statistics(logged(loss="2.5")) == {"loss": "2.5"}
    for line in ("", "{", "no {'python': 'dict'}", "ends in {}", "| [1, 2]", "x {1} y"):
        assert parse_statistics(line) == {}


def test_a_training_line_tells_update_loss_speed_and_time_left() -> None:
    progress = Progress(updates=1200)
    note = progress.read(logged(num_updates="300", loss="5.1", ppl="20.5", wps="2345.6", ups="1.5"))
    assert note == ("update 300 of 1200, loss 5.1, perplexity 20.5, 2346 tokens/s, about 10 min left", False)
    note = progress.read(logged(num_updates="1200", loss="5.1", ups="1.5"))
    assert note == ("update 1200 of 1200, loss 5.1, about 0 s left", True)


def test_the_time_limit_bounds_the_time_left() -> None:
    note = Progress(updates=1200, seconds=30.5).read(logged(num_updates="1", loss="5.1", ups="0.01"))
    assert note is not None
    assert note.text.endswith("about 30 s left")


def test_lines_are_all_copied_and_notes_are_few() -> None:
    lines = "".join(logged(num_updates=str(n), loss="1") for n in range(1, 50))
    lines += logged(epoch=1, valid_loss="3.5", valid_ppl="9.1", valid_num_updates="49") + "Traceback: \u2028odd\n"
    log, out = io.StringIO(), io.StringIO()
    copy_with_progress(io.StringIO(lines), log, Progress(updates=100), 3600.0, out)
    assert log.getvalue() == lines
    assert out.getvalue() == ("  update 1 of 100, loss 1\n  validation after update 49: loss 3.5, perplexity 9.1\n")


def test_hypotheses_are_counted() -> None:
    progress = Progress(sentences=2)
    notes = [progress.read(line) for line in ("S-0\ta\n", "H-0\t-1\tx\n", "D-0\t-1\tx\n", "H-1\t-1\ty\n")]
    assert notes == [
        None,
        ("1 of 2 sentences translated", False),
        None,
        ("2 of 2 sentences translated", True),
    ]


def test_updates_after_the_last_logged_one_are_counted_at_the_validation() -> None:
    progress = Progress()
    progress.read(logged(num_updates="30", loss="5.1", ups="0.5"))
    progress.read('| valid | {"valid_loss": "0.62", "valid_num_updates": "38"}')
    assert progress.updates_done == 38


def test_a_training_on_a_terminal_prints_progress_and_keeps_the_log(trainings: Trainings, tmp_path: Path) -> None:
    options = ["--max-update", 4, "--cpu", "--save-dir", tmp_path]
    given = [word for word in trainings.arguments("language model", *options) if word not in ("--log-format", "json")]
    command = [Path(sys.executable).with_name("fairseq-mega-train"), *given]
    shown = dialogue(command)
    assert "update 4 of 4, loss " in shown and "validation after update 4: loss " in shown
    assert f"the log: {tmp_path}/train.log" in shown and "| INFO |" not in shown
    assert "| INFO | fairseq_cli.train | task: " in (tmp_path / "train.log").read_text()
    assert "nothing to train" in dialogue(command)
    assert "| INFO |" in dialogue([*command, "--log-format", "simple"])
