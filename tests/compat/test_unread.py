"""Options that an evaluating command lists and does not read: refused by name."""

from pathlib import Path
from typing import List

import pytest
from fairseq import options

PARSERS = {
    "train": "training",
    "generate": "generation",
    "interactive": "interactive_generation",
    "eval-lm": "eval_lm",
    "validate": "validation",
}
EVALUATING = tuple(PARSERS)[1:]
TRANSLATING = ("generate", "interactive")


def parse(command: str, data: Path, words: List[str]) -> None:
    task = "language_modeling" if command == "eval-lm" else "translation"
    parser = getattr(options, f"get_{PARSERS[command]}_parser")()
    place = ["--arch", "mega_tiny"] if command == "train" else ["--path", str(data)]
    options.parse_args_and_arch(parser, [str(data), "--task", task, *place, *words])


@pytest.mark.parametrize(
    ("commands", "words"),
    [
        (EVALUATING, "--train-subset=valid"),
        (EVALUATING, "--log-file=x"),
        (EVALUATING, "--wandb-project=x"),
        (EVALUATING, "--fp16-init-scale=4"),
        (EVALUATING, "--memory-efficient-bf16"),
        (EVALUATING, "--ddp-backend=no_c10d"),
        (EVALUATING, "--curriculum=3"),
        (EVALUATING, "--max-valid-steps=3"),
        (EVALUATING, "--nval=3"),
        (EVALUATING, "--batch-size-valid=3"),
        (EVALUATING, "--max-sentences-valid=3"),
        (EVALUATING, "--optimizer=adam"),
        (EVALUATING, "--lr-scheduler=cosine"),
        (EVALUATING, "--quantization-config-path=x"),
        (("generate", "interactive", "eval-lm"), "--criterion=masked_lm"),
        (("generate", "interactive", "eval-lm"), "--valid-subset=test"),
        (TRANSLATING, "--save-dir=x"),
        (TRANSLATING, "--no-early-stop"),
        (TRANSLATING, "--sacrebleu"),
        (TRANSLATING, "--restore-file=x"),
        (TRANSLATING, "--reset-optimizer"),
        (TRANSLATING, "--patience=3"),
        (TRANSLATING, "--warmup-updates=3"),
        (TRANSLATING, "--eval-bleu"),
        (TRANSLATING, "--upsample-primary=2"),
        (TRANSLATING, "--load-alignments"),
        (("validate",), "--gen-subset=train"),
        (("validate", "eval-lm"), "--results-path=x"),
        (("interactive",), "--results-path=x"),
        (("interactive",), "--num-workers=3"),
        (("interactive",), "--score-reference"),
        (("eval-lm",), "--skip-invalid-size-inputs-valid-test"),
        (("eval-lm",), "--bpe=bytes"),
        (("train",), "--gen-subset=train"),
        (("train",), "--scoring=chrf"),
        (("train",), "--suppress-crashes"),
        (("train",), "--fast-stat-sync"),
        (("train",), "--checkpoint-shard-count=2"),
        (("train", "generate"), "--pad=3"),
    ],
)
def test_options_of_others(commands: List[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in commands:
        with pytest.raises(SystemExit):
            parse(command, tmp_path, [words])
        said = words.replace("=", " ")
        assert f"error: {said}: fairseq-{command} does not read it; " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "words", "instead"),
    [
        ("validate", "--gen-subset=train", "--valid-subset"),
        ("train", "--gen-subset=train", "--valid-subset"),
        ("generate", "--valid-subset=test", "--gen-subset"),
        ("generate", "--sacrebleu", "--scoring sacrebleu"),
        ("eval-lm", "--valid-subset=test", "--gen-subset"),
        ("validate", "--max-tokens-valid=9", "--max-tokens"),
    ],
)
def test_what_was_meant(
    command: str, words: str, instead: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(command, tmp_path, [words])
    assert capsys.readouterr().err.endswith(f"give {instead}\n")


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("lra-text", "--dataset-impl=raw"),
        ("lra-image", "--required-seq-len-multiple=2"),
        ("masked_lm", "--dataset-impl=mmap"),
        ("mega_language_modeling", "--required-seq-len-multiple=2"),
    ],
)
def test_options_of_other_tasks(task: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    criterions = {"lra-text": "lra_cross_entropy", "lra-image": "lra_cross_entropy", "masked_lm": "masked_lm"}
    own = ["--criterion", criterions.get(task, "cross_entropy")]
    for command, place in (("training", ["--arch", "mega_tiny", *own]), ("validation", ["--path", str(tmp_path)])):
        parser = getattr(options, f"get_{command}_parser")()
        with pytest.raises(SystemExit):
            options.parse_args_and_arch(parser, [str(tmp_path), *place, "--task", task, words])
        assert f"{words.replace('=', ' ')}: --task {task} does not read it; leave it out\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ("image-classification", "--augmentation=randaugment"),
        ("image-classification", "--repeated-augmentation=3"),
        ("image-classification", "--mixup=0.8"),
        ("image-classification", "--cutmix=1.0"),
        ("image-classification", "--label-smoothing=0.1"),
        ("image-classification", "--no-shuffle"),
        ("lra-text", "--no-shuffle"),
        ("speech_commands", "--no-shuffle"),
        ("mega_language_modeling", "--max-target-positions=9"),
        ("mega_language_modeling", "--variant-block-multiple-max=9"),
    ],
)
def test_options_of_trainings(task: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A training takes what its task reads in training alone; no other command does."""
    place = [str(tmp_path), "--task", task, words]
    criterion = "cross_entropy" if task == "mega_language_modeling" else "lra_cross_entropy"
    own = ["--arch", "mega_tiny", "--criterion", criterion]
    training = options.parse_args_and_arch(options.get_training_parser(), [*place, *own])
    assert training.task == task
    with pytest.raises(SystemExit):
        options.parse_args_and_arch(options.get_validation_parser(), [*place, "--path", str(tmp_path)])
    assert f"{words.replace('=', ' ')}: fairseq-validate does not read it" in capsys.readouterr().err


@pytest.mark.parametrize("command", EVALUATING)
def test_bfloat16_goes_beside_amp(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parse(command, tmp_path, ["--amp", "--bf16"])
    with pytest.raises(SystemExit):
        parse(command, tmp_path, ["--bf16"])
    assert capsys.readouterr().err.endswith("only with --amp; give --precision bf16\n")


@pytest.mark.parametrize("command", EVALUATING)
def test_options_that_are_read(command: str, tmp_path: Path) -> None:
    words = ["--max-tokens=100", "--batch-size=3", "--seed=3", "--cpu", "--log-format=json", "--log-interval=3"]
    words += ["--precision=bf16"]
    if command != "interactive":
        words += ["--num-workers=2", "--dataset-impl=mmap", "--data-buffer-size=3"]
        words += ["--valid-subset=test"] if command == "validate" else ["--gen-subset=train"]
    if command != "eval-lm":
        words += ["--required-seq-len-multiple=2"]
    if command in TRANSLATING:
        words += ["--beam=2", "--bpe=characters", "--tokenizer=space", "--post-process=none", "--max-len-b=9"]
    parse(command, tmp_path, words)
