"""A training that goes on where another one ended: --patience, --stop-time-hours, the best score, and nothing to do."""

import json
import re
import shutil
from collections import OrderedDict
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import ListDataset, RoundRobinZipDatasets

from fairseq_mega.cli import average_checkpoints
from fairseq_mega.compat.errors import describe
from fairseq_mega.compat.files import validations
from fairseq_mega.compat.processes import skip_finished as finished_trainings
from tests.support import helpers, lra_data, tiny_trainings

OPTIONS: List[object] = ["--cpu", "--num-workers", 0, "--no-epoch-checkpoints"]


class Trainer:
    """Trains small image classifiers below a folder."""

    def __init__(self, trainings: tiny_trainings.Trainings, folder: Path) -> None:
        self.trainings, self.folder = trainings, folder

    def __call__(self, name: str, *options: object, data: Optional[str] = None) -> str:
        arguments = self.trainings.arguments("image", *OPTIONS, *options, "--save-dir", self.folder / name)
        return helpers.run_fairseq("train", [data or arguments[0], *arguments[1:]])


@pytest.fixture
def train(trainings: tiny_trainings.Trainings, tmp_path: Path) -> Trainer:
    return Trainer(trainings, tmp_path)


def updates(output: str) -> int:
    """Number of updates that a log ends with; 0 where none was made."""
    return int([0, *re.findall(r'"train_num_updates": "(\d+)"', output)][-1])


def best(path: Path) -> Any:
    return torch.load(path / "checkpoint_best.pt", weights_only=False)["extra_state"]["best"]


@pytest.mark.parametrize("parts", [[20], [1, 3, 20]])
def test_patience_goes_on(train: Trainer, parts: List[int]) -> None:
    """8 updates an epoch, no validation better than the first, and three of those: 4 epochs, however they are cut."""
    patient: List[object] = ["--lr", 0, "--patience", 3]
    outputs = [train("a", *patient, "--max-epoch", epochs) for epochs in parts]
    assert "early stop since valid performance hasn't improved for last 3 runs" in outputs[-1]
    assert updates(outputs[-1]) == 32
    again = train("a", *patient, "--max-epoch", 20)
    assert "nothing to train: none of the last 3 validations was better, --patience is 3" in again
    assert updates(train("a", "--lr", 0, "--patience", 4, "--max-epoch", 20)) == 40


def test_time_goes_on_and_ends(train: Trainer, tmp_path: Path) -> None:
    short: List[object] = ["--stop-time-hours", 1e-6, "--max-epoch", 20]
    assert updates(train("a", *short)) == 1
    again = train("a", *short)
    assert "nothing to train: the checkpoint took" in again and updates(again) == 0
    last = tmp_path / "a" / "checkpoint_last.pt"
    state = torch.load(last, weights_only=False)
    state["extra_state"]["previous_training_time"] = 3600.0 * 24
    torch.save(state, last)
    # Another training with these weights has its own time.
    anew = train("b", "--stop-time-hours", 1, "--max-epoch", 1, "--finetune-from-model", last)
    assert updates(anew) == 8


LIMITS: Dict[str, List[object]] = {
    "updates below": ["--max-update", 3],
    "as many updates": ["--max-update", 8],
    "epochs": ["--max-epoch", 1],
    "rate": ["--stop-min-lr", 0.5],
    "time": ["--stop-time-hours", 1e-9],
    "patience": ["--patience", 2],
}


@pytest.fixture(scope="module")
def finished(trainings: tiny_trainings.Trainings, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training of an epoch with four validations, the first of which was the best."""
    folder = tmp_path_factory.mktemp("finished")
    options: List[object] = [*OPTIONS, "--lr", 0, "--max-epoch", 1, "--patience", 9, "--save-interval-updates", 2]
    helpers.run_fairseq("train", trainings.arguments("image", *options, "--save-dir", folder))
    return folder


@pytest.mark.parametrize("option", ["--restore-file", "--continue-once"])
@pytest.mark.parametrize("limit", LIMITS)
def test_no_update_and_no_checkpoint_is_an_error(
    train: Trainer, finished: Path, limit: str, option: str, tmp_path: Path
) -> None:
    last = finished / "checkpoint_last.pt"
    anew = f"--finetune-from-model {last} to begin anew with its weights, in place of {option}"
    with pytest.raises(ValueError, match=rf"nothing to train with {last}: .*{LIMITS[limit][0]}.*{anew}") as said:
        train("a", *LIMITS[limit], option, last)
    assert describe(said.value) == str(said.value)
    assert not list((tmp_path / "a").glob("*.pt"))


@pytest.mark.parametrize("limit", LIMITS)
def test_a_finished_training_again_is_a_success(
    trainings: tiny_trainings.Trainings, finished: Path, limit: str
) -> None:
    before = (finished / "checkpoint_last.pt").read_bytes()
    arguments = trainings.arguments("image", *OPTIONS, *LIMITS[limit], "--save-dir", finished)
    assert f"{LIMITS[limit][0]} is" in helpers.run_fairseq("train", arguments).partition("nothing to train: ")[2]
    assert (finished / "checkpoint_last.pt").read_bytes() == before


def test_another_seed_is_another_training(train: Trainer) -> None:
    for seed, options in ((1, []), (7, ["--seed", 7])):
        train(f"{seed}", "--max-epoch", 1, *options)
        other: List[object] = ["--seed", 8 - seed]
        with pytest.raises(
            ValueError, match=f"was trained with --seed {seed}, not {8 - seed}. Give another --save-dir"
        ):
            train(f"{seed}", "--max-epoch", 1, *other)
        assert "nothing to train: the next epoch" in train(f"{seed}", "--max-epoch", 1, *options)
        said = f"--seed changed ({seed}, now {8 - seed}): from epoch 2 on"
        assert said in train(f"{seed}", "--max-epoch", 2, *other)


def test_a_first_training_without_an_update_is_an_error(train: Trainer) -> None:
    with pytest.raises(ValueError, match="nothing to train: .*--stop-min-lr"):
        train("a", "--stop-min-lr", 0.5)


@pytest.fixture(scope="module")
def other_data(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of as many images of the same size as the toy data have, with other values."""
    folder = tmp_path_factory.mktemp("other data") / "data"
    lra_data.write_images(folder)
    pixels = folder / "input" / "valid.src"
    *lines, last = pixels.read_text().splitlines()
    pixels.write_text("\n".join([*lines, " ".join(reversed(last.split()))]) + "\n")
    return str(folder)


@pytest.mark.parametrize("place", ["another folder", "the same folder"])
def test_other_data_have_a_best_score_of_their_own(train: Trainer, other_data: str, place: str, tmp_path: Path) -> None:
    train("a", "--max-epoch", 1)
    better_never_seen = -5.0  # of the first data
    for path in (tmp_path / "a").glob("*.pt"):
        state = torch.load(path, weights_only=False)
        state["extra_state"]["best"] = better_never_seen
        torch.save(state, path)
    goes_on: List[object] = ["--max-epoch", 2]
    if place == "another folder":
        goes_on += ["--restore-file", tmp_path / "a" / "checkpoint_last.pt"]
    folder = tmp_path / ("b" if place == "another folder" else "a")
    output = train(folder.name, *goes_on, data=other_data)
    assert "is of another metric or other validation data: it begins anew" in output
    assert best(folder) > 0
    if place == "the same folder":  # now with the first data
        with pytest.raises(ValueError, match="was trained with other validation data.*another --save-dir"):
            train(folder.name, *goes_on)


def test_the_same_data_keep_their_best_score(train: Trainer, tmp_path: Path) -> None:
    train("a", "--max-epoch", 1)
    first = (tmp_path / "a" / "checkpoint_best.pt").read_bytes()
    path = tmp_path / "a" / "checkpoint_last.pt"
    state = torch.load(path, weights_only=False)
    state["extra_state"]["best"] = -5.0
    torch.save(state, path)
    output = train("a", "--max-epoch", 2)
    assert (tmp_path / "a" / "checkpoint_best.pt").read_bytes() == first and "anew" not in output
    train("b", "--max-epoch", 3, "--restore-file", path)  # a folder without one gets one
    assert best(tmp_path / "b") > 0


@pytest.mark.parametrize("other", [["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"]])
def test_another_metric_begins_anew(train: Trainer, other: List[object], tmp_path: Path) -> None:
    train("a", "--max-epoch", 1)
    train("a", "--max-epoch", 2, *other)
    assert best(tmp_path / "a") > 10  # per cent; a loss is about 1


@pytest.fixture(scope="module")
def translator(trainings: tiny_trainings.Trainings, tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Path]:
    """Folders of trainings of one update, by their metric; each has a best score that none is better than."""
    folders = {}
    for metric, options in OF_METRICS.items():
        folder = folders[metric] = tmp_path_factory.mktemp(metric)
        given = [*OPTIONS, "--lr-scheduler", "reduce_lr_on_plateau", "--max-update", 1, *options]
        helpers.run_fairseq("train", trainings.arguments("translation", *given, "--save-dir", folder))
        for path in folder.glob("*.pt"):
            state = torch.load(path, weights_only=False)
            state["extra_state"]["best"] = NEVER[metric]
            state["optimizer_history"][-1]["lr_scheduler_state"]["best"] = NEVER[metric]
            torch.save(state, path)
    return folders


NEVER = {"loss": -5.0, "nll_loss": -5.0, "bleu": 500.0}  # scores that are better than what can be
OF_METRICS: Dict[str, List[object]] = {
    "loss": ["--label-smoothing", 0.1],
    "nll_loss": ["--label-smoothing", 0.1, "--best-checkpoint-metric", "nll_loss"],
    "bleu": [
        *("--eval-bleu", "--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric"),
        *("--eval-bleu-args", '{"beam": 1, "max_len_b": 3}'),
    ],
}


@pytest.mark.parametrize(
    ("metric", "other", "anew"),
    [
        ("loss", [], False),
        ("loss", ["--label-smoothing", 0.2], True),
        ("loss", ["--sentence-avg"], True),
        ("loss", ["--ignore-prefix-size", 1], True),
        ("loss", ["--max-valid-steps", 1], True),
        ("loss", ["--report-accuracy"], False),
        ("loss", ["--dropout", 0.5, "--max-tokens", 150], False),
        ("nll_loss", ["--label-smoothing", 0.2, "--sentence-avg"], False),
        ("nll_loss", ["--ignore-prefix-size", 1], True),
        ("bleu", ["--label-smoothing", 0.2], False),
        ("bleu", ["--eval-bleu-print-samples"], False),
        ("bleu", ["--eval-tokenized-bleu"], True),
        ("bleu", ["--eval-bleu-args", '{"beam": 2, "max_len_b": 3}'], True),
    ],
)
def test_scores_of_another_kind_do_not_compare(
    trainings: tiny_trainings.Trainings,
    translator: Dict[str, Path],
    metric: str,
    other: List[object],
    anew: bool,
    tmp_path: Path,
) -> None:
    """Begin the best score anew, and that of the schedule, with options that change what is measured."""
    folder = tmp_path / "a"
    shutil.copytree(translator[metric], folder)
    options = [*OPTIONS, "--lr-scheduler", "reduce_lr_on_plateau", "--max-update", 2, *OF_METRICS[metric]]
    output = helpers.run_fairseq("train", trainings.arguments("translation", *options, *other, "--save-dir", folder))
    last = torch.load(folder / "checkpoint_last.pt", weights_only=False)
    kept = [last["extra_state"]["best"], last["optimizer_history"][-1]["lr_scheduler_state"]["best"]]
    assert ("is of another kind" in output) == anew
    assert [score == NEVER[metric] for score in kept] == [not anew, not anew]


def test_checkpoints_of_before_go_on(train: Trainer, tmp_path: Path) -> None:
    """Without what we add: the best score counts, and the patience begins with it."""
    train("a", "--lr", 0, "--max-epoch", 2, "--patience", 3)
    path = tmp_path / "a" / "checkpoint_last.pt"
    state = torch.load(path, weights_only=False)
    del state["extra_state"][validations.KEY]
    torch.save(state, path)
    assert updates(train("a", "--lr", 0, "--max-epoch", 20, "--patience", 3)) == 40


def test_nothing_is_left_of_the_training_before(train: Trainer, tmp_path: Path) -> None:
    """Several trainings in one process, as of a sweep."""
    train("a", "--max-epoch", 1)
    checkpoint_utils.save_checkpoint.best = -5.0
    arguments = train.trainings.arguments("image", *OPTIONS, "--max-epoch", 1, "--save-dir", tmp_path / "b")
    forget, helpers.forget_earlier_runs = helpers.forget_earlier_runs, lambda: None
    try:
        output = helpers.run_fairseq("train", arguments)
    finally:
        helpers.forget_earlier_runs = forget
        forget()
    assert (tmp_path / "b" / "checkpoint_best.pt").exists()
    found = re.findall(r"\| valid \| (\{.*\})", output)
    assert float(json.loads(found[-1])["valid_loss"]) > 0


@pytest.fixture(scope="module")
def without_optimizer(trainings: tiny_trainings.Trainings, tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Path]:
    """Checkpoints of three updates that hold no optimizer, by their name."""
    folder = tmp_path_factory.mktemp("without")
    options = [*OPTIONS, "--max-update", 3, "--no-save-optimizer-state", "--save-dir", folder]
    helpers.run_fairseq("train", trainings.arguments("image", *options))
    last, mean = folder / "checkpoint_last.pt", folder / "mean.pt"
    assert average_checkpoints.main(["--inputs", str(last), "--output", str(mean)]) == 0
    return {"last": last, "mean": mean}


@pytest.mark.parametrize("name", ["last", "mean"])
@pytest.mark.parametrize(
    ("more", "end"),
    [
        (["--max-update", 5], "contains no optimizer state .* after its 3 updates"),
        (["--max-epoch", 2], "contains no optimizer state .* after its 3 updates"),
        (["--max-update", 5, "--reset-optimizer"], 5),
        (["--max-update", 5, "--reset-meters", "--reset-optimizer", "--reset-lr-scheduler"], 5),
    ],
)
def test_updates_go_on_with_an_optimizer_alone(
    train: Trainer, without_optimizer: Dict[str, Path], name: str, more: List[object], end: Any, tmp_path: Path
) -> None:
    """Count no updates anew, with a schedule that begins again, because the optimizer is not there."""
    checkpoint = without_optimizer[name]
    (tmp_path / "a").mkdir()
    shutil.copy(checkpoint, tmp_path / "a" / "checkpoint_last.pt")
    for given in ([], ["--restore-file", checkpoint]):
        if isinstance(end, int):
            assert updates(train("a", *more, *given)) == end
            return
        with pytest.raises(ValueError, match=f"{checkpoint if given else tmp_path / 'a'}.*{end}"):
            train("a" if not given else "b", *more, *given)


def test_a_finished_training_without_its_optimizer_stays(train: Trainer, tmp_path: Path) -> None:
    options: List[object] = ["--max-update", 3, "--no-save-optimizer-state"]
    train("a", *options)
    before = (tmp_path / "a" / "checkpoint_last.pt").read_bytes()
    assert "nothing to train: the checkpoint has 3 updates" in train("a", *options)
    assert (tmp_path / "a" / "checkpoint_last.pt").read_bytes() == before


@pytest.mark.parametrize(
    ("files", "epoch", "updates", "later"),
    [
        (["checkpoint_last.pt", "checkpoint_best.pt", "training.lock"], 1, 0, []),
        (["checkpoint1.pt", "checkpoint2.pt", "checkpoint_2_12.pt"], 3, 16, []),
        (["checkpoint2.pt", "checkpoint10.pt"], 3, 16, ["checkpoint10.pt"]),
        (["checkpoint_2_12.pt", "checkpoint_4_30.pt"], 3, 16, ["checkpoint_4_30.pt"]),
        (["checkpoint.best_loss_0.5.pt"], 3, 16, []),
        (["checkpoint.best_loss_0.5.pt", "checkpoint1.pt"], 1, 0, ["checkpoint.best_loss_0.5.pt", "checkpoint1.pt"]),
    ],
)
def test_checkpoints_of_later_updates(files: List[str], epoch: int, updates: int, later: List[str]) -> None:
    assert finished_trainings.later_checkpoints(files, epoch, updates) == later


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            "no last",
            "checkpoint1.pt and 1 more of a training that went further: this one begins with epoch 1, after 0 updates",
        ),
        ("earlier", "checkpoint2.pt of a training that went further: this one begins with epoch 2, after 8 updates"),
        ("on", None),
    ],
)
def test_files_of_another_training_are_told(train: Trainer, how: str, said: Optional[str], tmp_path: Path) -> None:
    """A training among them would have its own files removed, and theirs averaged."""
    folder = tmp_path / "a"
    arguments = [*train.trainings.arguments("image", "--cpu", "--num-workers", 0, "--save-dir", folder)]
    helpers.run_fairseq("train", [*arguments, "--max-epoch", 2])
    more: List[object] = ["--restore-file", folder / "checkpoint1.pt"] if how == "earlier" else []
    if how == "no last":
        (folder / "checkpoint_last.pt").unlink()
    output = helpers.run_fairseq("train", [*arguments, "--max-epoch", 3, *more])
    assert (f"{folder} contains {said}" in output) if said else "went further" not in output


@pytest.mark.parametrize("how", ["no last", "continued", "disabled", "last"])
def test_a_best_checkpoint_that_will_be_replaced_is_told(train: Trainer, how: str, tmp_path: Path) -> None:
    """The same command again begins anew where checkpoint_best.pt was kept alone."""
    best, last = (tmp_path / "a" / f"checkpoint_{name}.pt" for name in ("best", "last"))
    train("a", "--max-update", 3, "--no-epoch-checkpoints")
    if how != "last":
        last.unlink()
    more: Dict[str, List[object]] = {"continued": ["--restore-file", best], "disabled": ["--disable-validation"]}
    output = train("a", "--max-update", 4, "--no-epoch-checkpoints", *more.get(how, []))
    said = f"will replace {best} of another training: give --restore-file {best} to continue that one"
    assert (said in output) == (how == "no last")


def test_the_digest_is_of_the_contents() -> None:
    def data(*values: Any) -> List[Dict[str, Any]]:
        return [{"id": place, "source": torch.tensor(value)} for place, value in enumerate(values)]

    digests = {
        validations.digest(data(*values)) for values in ([1, 2], [1, 3], [1, 2, 3], [2, 1], [1.5, 2], [[1], [2]], [])
    }
    assert len(digests) == 7
    assert validations.digest(data(1, 2)) == validations.digest(data(1, 2))
    assert validations.digest(iter([])) is None
    assert validations.digest(RoundRobinZipDatasets(OrderedDict(a=ListDataset([1, 2], [1, 1])))) is None


@pytest.mark.parametrize(
    ("options", "files"),
    [
        (["--save-interval", 2, "--max-epoch", 3], {"checkpoint_best.pt", "checkpoint_last.pt"}),
        (["--save-interval", 9, "--max-epoch", 1, "--disable-validation"], {"checkpoint_last.pt"}),
        (["--save-interval", 9, "--max-epoch", 1, "--save-interval-updates", 8], None),
        (["--save-interval", 9, "--stop-min-lr", 0.005, "--lr", 0.01, "--force-anneal", 2], {"checkpoint_last.pt"}),
    ],
)
def test_the_last_epochs_are_saved(
    train: Trainer, options: List[object], files: Optional[set], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever --save-interval says; once, where they are saved already."""
    written = []
    persist = checkpoint_utils.torch_persistent_save

    def count(obj: Any, filename: str, **more: Any) -> None:
        written.append(filename)
        persist(obj, filename, **more)

    monkeypatch.setattr(checkpoint_utils, "torch_persistent_save", count)
    output = train("a", *options)
    last = torch.load(tmp_path / "a" / "checkpoint_last.pt", weights_only=False)
    assert last["optimizer_history"][-1]["num_updates"] == updates(output) > 0
    assert files is None or files <= {path.name for path in (tmp_path / "a").iterdir()}
    assert len(written) == (2 if "--max-epoch" in options and options[-1] == 3 else 1)


@pytest.mark.parametrize("more", [[], ["--no-save"], ["--save-interval-updates", 4]])
def test_a_training_that_saves_nothing_says_so(train: Trainer, more: List[object]) -> None:
    nothing = ["--no-last-checkpoints", "--no-epoch-checkpoints", "--disable-validation", "--max-epoch", 1]
    if more:
        train("a", *nothing, *more)
    else:
        with pytest.raises(ValueError, match="leave no checkpoint: .*--no-save"):
            train("a", *nothing)


@pytest.mark.parametrize(
    "options",
    [
        ["--no-epoch-checkpoints", "--save-interval-updates", 50, "--max-update", 3],
        ["--no-epoch-checkpoints", "--save-interval-updates", 50, "--max-epoch", 1],
        ["--max-update", 3],  # within the first epoch
        ["--save-interval", 2, "--max-epoch", 1],
        ["--no-epoch-checkpoints", "--save-interval-updates", 2, "--keep-interval-updates", 1, "--max-update", 3],
    ],
)
def test_an_end_before_the_first_checkpoint_is_saved(
    trainings: tiny_trainings.Trainings, options: List[object], tmp_path: Path
) -> None:
    given = ["--cpu", "--num-workers", 0, "--no-last-checkpoints", "--disable-validation", "--save-dir", tmp_path / "a"]
    output = helpers.run_fairseq("train", trainings.arguments("image", *given, *options))
    files = [path.name for path in (tmp_path / "a").glob("*.pt")]
    due = 2 in options and "--keep-interval-updates" in options
    assert files == (["checkpoint_1_2.pt"] if due else ["checkpoint_last.pt"])
    assert ("before the first checkpoint was due" in output) is not due


def test_another_beginning_is_told(train: Trainer, tmp_path: Path) -> None:
    train("a", "--max-epoch", 1)
    train("b", "--max-epoch", 1)
    output = train("b", "--max-epoch", 2, "--finetune-from-model", tmp_path / "a" / "checkpoint_last.pt")
    assert "a/checkpoint_last.pt is not read: the training continues from" in output
