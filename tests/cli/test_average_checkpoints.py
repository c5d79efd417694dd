"""The mean of checkpoints: values, what is kept, what is refused."""

from pathlib import Path
from typing import Any, Dict, Tuple

import pytest
import torch

from fairseq_mega.cli import average_checkpoints

Tensors = Dict[str, torch.Tensor]


def write(path: Path, model: Tensors, **extra: Any) -> Path:
    torch.save({"model": model, "cfg": {"seed": 1}, "last_optimizer_state": {"big": torch.ones(9)}, **extra}, path)
    return path


def weights(seed: int) -> Tensors:
    draw = torch.Generator().manual_seed(seed)
    table = torch.randn(5, 3, generator=draw)
    return {
        "embed": table,
        "output": table,
        "half": torch.randn(4, generator=draw).half(),
        "steps": torch.tensor([seed]),
        "flag": torch.tensor(True),
    }


def run(*arguments: object) -> int:
    return average_checkpoints.main([str(argument) for argument in arguments])


def test_the_mean_is_taken_in_float64_and_cast_back(tmp_path: Path) -> None:
    models = [weights(seed) for seed in range(7)]
    # Values that cancel in float64 only: a float32 sum would lose the one.
    for model, value in zip(models, (1e8, 1.0, -1e8, 0.0, 0.0, 0.0, 6.0)):
        model["cancel"] = torch.tensor([value])
    paths = [write(tmp_path / f"{i}.pt", model) for i, model in enumerate(models)]
    assert run("--inputs", *paths, "--output", tmp_path / "mean.pt") == 0
    mean = torch.load(tmp_path / "mean.pt")["model"]
    assert mean["cancel"].item() == 1.0
    for key in ("embed", "half"):
        want = torch.stack([model[key].double() for model in models]).mean(0).to(models[0][key].dtype)
        assert mean[key].dtype == want.dtype
        assert torch.equal(mean[key], want)
    assert mean["steps"].item() == 6
    assert mean["flag"].item() is True


def test_configuration_stays_and_optimiser_and_ema_go(tmp_path: Path) -> None:
    extra = {"extra_state": {"epoch": 3, "ema": weights(1)}, "optimizer_history": [{"num_updates": 4}]}
    paths = [write(tmp_path / f"{i}.pt", weights(i), **extra) for i in range(2)]
    assert run("--inputs", *paths, "--output", tmp_path / "mean.pt") == 0
    mean = torch.load(tmp_path / "mean.pt")
    assert sorted(mean) == ["cfg", "extra_state", "model", "optimizer_history"]
    assert mean["extra_state"] == {"epoch": 3}


def test_the_average_of_a_training_becomes_the_model(tmp_path: Path) -> None:
    kept = {"epoch": 3, "ema": weights(1), "ema_fp32_params": weights(2)}
    path = write(tmp_path / "a.pt", weights(0), extra_state=kept)
    assert run("--ema", path, "--output", tmp_path / "mean.pt") == 0
    mean = torch.load(tmp_path / "mean.pt")
    assert sorted(mean) == ["cfg", "extra_state", "model"] and mean["extra_state"] == {"epoch": 3}
    assert all(torch.equal(mean["model"][key], value) for key, value in weights(1).items())
    other = write(tmp_path / "other.pt", weights(0), extra_state={**kept, "ema": {"embed": torch.ones(5, 3)}})
    without = write(tmp_path / "without.pt", weights(0), extra_state={"epoch": 3})
    for source in (other, without):
        assert run("--ema", source, "--output", tmp_path / "x.pt") == 1 and not (tmp_path / "x.pt").exists()


def test_tied_embeddings_stay_one_tensor(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{i}.pt", weights(i)) for i in range(2)]
    assert run("--inputs", *paths, "--output", tmp_path / "mean.pt") == 0
    mean = torch.load(tmp_path / "mean.pt")["model"]
    assert mean["embed"].data_ptr() == mean["output"].data_ptr()


def test_the_last_epochs_are_ordered_by_number(tmp_path: Path) -> None:
    names = ["checkpoint2.pt", "checkpoint9.pt", "checkpoint10.pt", "checkpoint11.pt"]
    for name in [*names, "checkpoint_11_500.pt", "checkpoint_last.pt", "checkpoint_best.pt", "checkpoint12.pt.partial"]:
        (tmp_path / name).touch()
    found = average_checkpoints.last_epoch_checkpoints(tmp_path, 3)
    assert [path.name for path in found] == names[1:]


@pytest.mark.parametrize("change", [{"more": torch.ones(1)}, {"embed": torch.ones(5, 4)}, {"half": torch.ones(4)}])
def test_other_keys_shapes_and_types_are_refused(tmp_path: Path, capsys: Any, change: Tensors) -> None:
    paths = [write(tmp_path / "a.pt", weights(1)), write(tmp_path / "b.pt", {**weights(2), **change})]
    assert run("--inputs", *paths, "--output", tmp_path / "mean.pt") == 1
    assert str(paths[1]) in capsys.readouterr().err and not (tmp_path / "mean.pt").exists()


def test_inputs_are_never_overwritten_nor_counted_twice(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{i}.pt", weights(i)) for i in range(2)]
    link = tmp_path / "link.pt"
    link.symlink_to(paths[0])
    before = [path.read_bytes() for path in paths]
    assert run("--inputs", *paths, "--output", link) == run("--ema", paths[0], "--output", link) == 1
    assert run("--inputs", paths[0], link, "--output", tmp_path / "mean.pt") == 1
    assert [path.read_bytes() for path in paths] == before


def test_entries_of_cards_that_differ_are_named(tmp_path: Path, capsys: Any) -> None:
    texts: Tuple[Dict[str, str], ...] = ({"source": "0", "labels": "a\nb"}, {}, {"source": "1", "labels": "a\nc"})
    paths = [write(tmp_path / f"{i}.pt", weights(i), card=card) for i, card in enumerate(texts)]
    assert run("--inputs", *paths, "--output", tmp_path / "mean.pt") == 1
    error = capsys.readouterr().err
    assert f"(labels 1: b in {paths[0]}, c in {paths[2]}; source: 0 in {paths[0]}, 1 in {paths[2]})" in error
    assert not (tmp_path / "mean.pt").exists()
    assert run("--inputs", paths[0], paths[1], "--output", tmp_path / "mean.pt") == 0
    assert torch.load(tmp_path / "mean.pt")["card"] == texts[0]
