"""Options of a training that cannot be had together are refused before it begins, in one line."""

import re
from pathlib import Path
from typing import List

import pytest
import torch
from fairseq.optim import FairseqOptimizer
from fairseq.options import get_validation_parser, parse_args_and_arch
from fairseq.registry import REGISTRIES

from fairseq_mega.cli import console
from fairseq_mega.compat.errors import describe, is_users_error
from fairseq_mega.compat.patches import training_options
from tests.support import helpers, tiny_trainings

POLYNOMIAL = ["--lr-scheduler", "polynomial_decay"]
MANUAL = ["--lr-scheduler", "manual"]
BLEU = ["--eval-bleu"]
METRIC, MAXIMIZE = "--best-checkpoint-metric", "--maximize-best-checkpoint-metric"
REFUSED = [
    (
        [*POLYNOMIAL, "--total-num-update", "0"],
        "--total-num-update 0: --lr-scheduler polynomial_decay requires the num",
    ),
    ([*POLYNOMIAL, "--total-num-update", "nan"], "--total-num-update nan: give a finite number"),
    ([*POLYNOMIAL, "--total-num-update", "many"], "--total-num-update 'many': give a number"),
    ([*POLYNOMIAL, "--max-update", "0"], "--total-num-update (by default --max-update) 0: --lr-scheduler polynomial"),
    ([*POLYNOMIAL, "--total-num-update", "5", "--warmup-updates", "10"], "--warmup-updates 10: give fewer than --tot"),
    (["--lr-scheduler", "cosine", "--warmup-updates", "5", "--max-update", "2"], "--warmup-updates 5: give fewer than"),
    (["--lr-scheduler", "tri_stage", "--warmup-steps", "5"], "--lr-scheduler tri_stage is impossible with --warmup-st"),
    (["--lr-scheduler", "tri_stage", "--phase-ratio", "[1,1,1]"], "phase ratios must add up to 1): change these"),
    (["--lr-scheduler", "inverse_sqrt", "--lr", "1,2"], "--lr-scheduler inverse_sqrt is impossible with"),
    ([*MANUAL, "--update2lr", "{1: 0.1}"], "--update2lr {1: 0.1}: give a dictionary of rates, for instance"),
    ([*MANUAL, "--epoch2lr", "{1:0.01,2:0.001}"], "--epoch2lr {1:0.01,2:0.001}: give a dictionary of rates"),
    ([*MANUAL, "--epoch2lr", "{'1-': 0.01}"], "--epoch2lr {'1-': 0.01}: give a dictionary of rates"),
    ([*MANUAL, "--epoch2lr", "{'1': 'high'}"], "--epoch2lr {'1': 'high'}: give a dictionary of rates"),
    ([*MANUAL, "--epoch2lr", "{'1': None}"], "--epoch2lr {'1': None}: give a dictionary of rates"),
    ([*MANUAL, "--epoch2lr", "0.1"], "--epoch2lr 0.1: give a dictionary of rates"),
    ([*MANUAL, "--epoch2lr", "{'1': 0.1"], "--epoch2lr {'1': 0.1: give a dictionary of rates"),
    (MANUAL, "--lr-scheduler manual: give --epoch2lr or --update2lr a dictionary of rates"),
    (["--keep-interval-updates", "2"], "--keep-interval-updates 2: add --save-interval-updates, without which it has"),
    (["--patience", "2", "--disable-validation"], "--patience 2 acts after validations: leave --disable-validation"),
    (["--combine-valid-subsets", "--valid-subset", "valid,test"], "--valid-subset valid,test: --combine-valid-subsets"),
    (["--validate-after-updates", "50", "--max-update", "30"], "--validate-after-updates 50 is beyond --max-update 30"),
    (["--keep-best-checkpoints", "2", "--disable-validation"], "--keep-best-checkpoints 2 acts after validations"),
    (["--finetune-from-model", "/"], "--finetune-from-model / is a folder: give the file of a checkpoint"),
    (["--continue-once", "/none"], "--continue-once /none does not exist: give the file of a checkpoint"),
    (["--restore-file", "/none.pt"], "--restore-file /none.pt does not exist: give a file, or leave the option out"),
    (["--restore-file", "/"], "--restore-file / is a folder: give a file, or leave the option out"),
    (["--restore-file", "checkpoint_best.pt"], "--restore-file checkpoint_best.pt does not exist"),
    (["--bpe", "sentencepiece"], "--sentencepiece-model is missing: give a file"),
    (["--bpe", "sentencepiece", "--sentencepiece-model", "/none"], "--sentencepiece-model /none does not exist"),
    (["--bpe", "subword_nmt", "--bpe-codes", "/none"], "--bpe-codes /none does not exist: give a file"),
    (["--quantization-config-path", "/none"], "--quantization-config-path /none does not exist: give a file"),
    (["--encoder-embed-path", "/none"], "--encoder-embed-path /none does not exist: give a file"),
    (["--store-ema", "--ema-seed-model", "/none"], "--ema-seed-model /none does not exist: give a file"),
    (["--continue-once", "/"], "--continue-once / is a folder: give the file of a checkpoint"),
    (["--optimizer-overrides", "[1]"], "--optimizer-overrides [1]: give a dictionary, for example"),
    (["--optimizer-overrides", "{'lr': 0.1}"], "--lr-scheduler fixed sets the learning rate: give --lr"),
    ([METRIC, "nosuch"], "--best-checkpoint-metric nosuch is unknown: give loss, nll_loss, ppl, accuracy or bleu"),
    ([METRIC, "wps", MAXIMIZE], "--best-checkpoint-metric wps is unknown: give loss, "),
    ([METRIC, "bleu", MAXIMIZE], "--best-checkpoint-metric bleu: add --eval-bleu"),
    ([METRIC, "accuracy", MAXIMIZE], "--best-checkpoint-metric accuracy: add --report-accuracy"),
    ([*BLEU, METRIC, "bleu"], "--best-checkpoint-metric bleu: the highest is the best; add"),
    ([*BLEU, "--eval-bleu-args", "{broken"], "--eval-bleu-args {broken: give a dictionary of JSON"),
    ([*BLEU, "--eval-bleu-args", "[4]"], "--eval-bleu-args [4]: give a dictionary of JSON"),
    ([*BLEU, "--eval-bleu-args", '{"nosuch": 1}'], "nosuch is not an option of fairseq-generate: leave it out"),
    ([*BLEU, "--eval-bleu-args", '{"beam": 0}'], "--beam 0: give a whole number above 0"),
    (
        [*BLEU, "--eval-bleu-detok-args", '{"traget_lang": "de"}'],
        "traget_lang is not an option of --eval-bleu-detok space",
    ),
    (
        [*BLEU, "--eval-bleu-detok", "moses", "--eval-bleu-detok-args", '{"traget_lang": "de"}'],
        "traget_lang is not an option of --eval-bleu-detok moses: leave it out",
    ),
    ([*BLEU, "--eval-bleu-detok", "nosuch"], "--eval-bleu-detok nosuch is unknown: give one of moses, nltk, space"),
    (
        ["--eval-bleu-args", '{"beam": 4}'],
        '--eval-bleu-args {"beam": 4}: add --eval-bleu, without which it has no effect',
    ),
    (["--eval-bleu-print-samples"], "--eval-bleu-print-samples: add --eval-bleu, without which it has no effect"),
    (["--ema-decay", "0.9"], "--ema-decay 0.9: add --store-ema, without which it has no effect"),
    (["--ema-fp32"], "--ema-fp32: add --store-ema, without which it has no effect"),
    (["--lr-scheduler", "fixed", "--lr-shrink", "0.5"], "--lr-shrink 0.5: add --force-anneal, without which it has"),
    (["--fp16-scale-window", "9"], "--fp16-scale-window 9: add --fp16 or --precision fp16, without which it has no"),
    (["--bf16", "--min-loss-scale", "0.1"], "--min-loss-scale 0.1: add --fp16, --precision fp16 or --amp, without"),
    (["--amp-batch-retries", "3"], "--amp-batch-retries 3: add --amp, without which it has no effect"),
    (["--localsgd-frequency", "4"], "--localsgd-frequency 4: add --ddp-backend slow_mo, without which it has no"),
    (["--pipeline-chunks", "4"], "--pipeline-chunks 4: add --pipeline-model-parallel, without which it has no effect"),
    (["--aim-run-hash", "x"], "--aim-run-hash x: add --aim-repo, without which it has no effect"),
    (["--adaptive-softmax-factor", "2"], "--adaptive-softmax-factor 2.0: add --adaptive-softmax-cutoff, without which"),
    (["--adaptive-softmax-factor", "0"], "--adaptive-softmax-factor 0.0: add --adaptive-softmax-cutoff, without"),
    (["--keep-interval-updates-pattern", "4"], "--keep-interval-updates-pattern 4: add --keep-interval-updates"),
    (["--load-alignments"], "--load-alignments: models of this package cannot learn attention from"),
    (["--upsample-primary", "3"], "--upsample-primary 3 requires a second training set"),
    (["--optimizer", "composite"], "--optimizer composite requires a configuration file: use fairseq-hydra-train"),
    (["--fp16-adam-stats"], "--fp16-adam-stats is only supported with FusedAdamV1"),
    ([*BLEU, "--eval-bleu-remove-bpe", "nosuch"], "--eval-bleu-remove-bpe nosuch is unknown: give one of sentencep"),
]


def error_of(data: Path, options: List[str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> str:
    """The one line of error of a training that must fail."""
    given = [str(data), *helpers.TINY_TRAINING, "--cpu", "--save-dir", str(tmp_path), "--max-update", "1", *options]
    helpers.forget_earlier_runs()
    assert console.run("train", given) == console.VALUE_ERROR
    (line,) = [line for line in capsys.readouterr().err.splitlines() if ": error: " in line]
    return line


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_cannot_be_is_refused(options, message, tiny_corpus, capsys, tmp_path) -> None:
    assert message in error_of(tiny_corpus, options, capsys, tmp_path)
    assert not list(tmp_path.glob("*.pt"))


def test_a_training_that_diverges(tiny_corpus, capsys, tmp_path) -> None:
    message = error_of(tiny_corpus, ["--weight-decay", "1e30", "--max-update", "3"], capsys, tmp_path)
    assert "error: gradients are Nan/Inf. The training diverges: use a lower --lr" in message


@pytest.mark.parametrize("name", ["ctc", "masked_lm", "label_smoothed_cross_entropy_with_alignment", "wav2vec"])
def test_a_criterion_of_other_models(name, capsys, tmp_path) -> None:
    words = ["--arch", "mega_tiny", "--task", "translation", "--criterion", name, "--optimizer", "adam"]
    assert console.run("train", [str(tmp_path), *words, "--lr", "0.1", "--max-update", "1"]) == console.VALUE_ERROR
    assert f"--criterion {name} is for other models than --arch mega_tiny: give cross_en" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--mask-prob", "0"], "--mask-prob 0.0: give a number above 0 and below 1"),
        (["--mask-prob", "1"], "--mask-prob 1.0: give a number above 0 and below 1"),
        (["--random-token-prob", "-1"], "--random-token-prob -1.0: give a number from 0 to 1"),
        (["--leave-unmasked-prob", "0.95"], "--leave-unmasked-prob 0.95 and --random-token-prob 0.1: give a sum"),
        (["--mask-multiple-length", "0"], "--mask-multiple-length 0: give 1 to --tokens-per-sample"),
        (["--mask-stdev", "1e30"], "--mask-stdev 1e+30: give 0 to --tokens-per-sample"),
        (["--mask-whole-words"], "--mask-whole-words: fairseq's masked_lm cannot build the model that knows words"),
        (["--d2v2-multi"], "--d2v2-multi: it is for data2vec's models; leave it out"),
        (["--dataset-impl", "mmap"], "--dataset-impl mmap: --task masked_lm does not read it; leave it out"),
    ],
)
def test_masks_that_cannot_be(options, message, capsys, tmp_path) -> None:
    words = ["--arch", "mega_masked_lm_tiny", "--task", "masked_lm", "--criterion", "masked_lm", "--optimizer", "adam"]
    assert console.run("train", [str(tmp_path), *words, "--lr", "0.1", *options]) == console.VALUE_ERROR
    assert message in capsys.readouterr().err
    if "--dataset-impl" not in options:
        parser = get_validation_parser()
        with pytest.raises(SystemExit):
            parse_args_and_arch(parser, [str(tmp_path), "--path", "x", "--task", "masked_lm", *options])
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "task",
    ["masked_lm", "language_modeling", "mega_language_modeling", "megalodon_pretrain", "translation", "lra-text"]
    + ["lra-image", "image-classification", "speech_commands"],
)
def test_a_validation_takes_each_option_of_a_task_alone(task, tmp_path) -> None:
    """A validation accepts an option that replaces a checkpoint's while all others have no value."""
    known = {action.dest for action in get_validation_parser()._actions}
    whole = get_validation_parser()
    words = [str(tmp_path), "--path", "x", "--task", task]
    parse_args_and_arch(whole, words)
    given = {}
    for action in whole._actions:
        if action.dest in known or not action.option_strings or action.default is None:
            continue
        option = action.option_strings[-1]
        value = [] if action.nargs == 0 else [str(action.default)]
        if action.nargs == 0 and option in ("--mask-whole-words", "--d2v2-multi", "--no-shuffle"):
            continue  # refused
        alone = parse_args_and_arch(get_validation_parser(), [*words, option, *value], suppress_defaults=True)
        given[action.dest] = getattr(alone, action.dest)
    assert len(given) > 1, task


def test_a_metric_that_a_validation_lacks(tiny_corpus, capsys, monkeypatch, tmp_path) -> None:
    """Refuse it once the criterion has validated, before which its metrics are not known."""
    monkeypatch.setattr(training_options, "METRICS", {})
    message = error_of(tiny_corpus, [METRIC, "nosuch"], capsys, tmp_path)
    assert "--best-checkpoint-metric nosuch: " in message


def test_a_metric_that_is_a_text(trainings: tiny_trainings.Trainings, capsys, monkeypatch, tmp_path) -> None:
    given = [METRIC, "correct", MAXIMIZE, "--cpu", "--max-update", 2, "--save-dir", tmp_path]
    words = [*map(str, trainings.arguments("text", *given))]
    for metrics in (training_options.METRICS, {}):  # known before, and only once the criterion has validated
        monkeypatch.setattr(training_options, "METRICS", metrics)
        assert console.run("train", words) != 0
        assert re.search(r"-metric correct is (unknown|\d+ of \d+, not a number)", capsys.readouterr().err)


@pytest.mark.parametrize(
    "options",
    [
        [*MANUAL, "--update2lr", '{"1": 0.01, "2-3": 0.001, "4,6": 0.1}'],
        [*POLYNOMIAL],
        [*POLYNOMIAL, "--total-num-update", "5", "--warmup-updates", "4"],
        ["--lr-scheduler", "cosine", "--warmup-updates", "5", "--lr-period-updates", "5"],
        ["--report-accuracy", METRIC, "accuracy", MAXIMIZE],
        [METRIC, "num_updates", MAXIMIZE],
    ],
)
def test_what_can_be_trains(options, tiny_corpus, tmp_path) -> None:
    given = [tiny_corpus, *helpers.TINY_TRAINING, "--cpu", "--save-dir", tmp_path, "--max-update", 1, *options]
    assert re.search("done training", helpers.run_fairseq("train", given))


@pytest.mark.parametrize(
    ("before", "after", "rate"),
    [
        ([], ["reduce_lr_on_plateau"], 0.005),
        ([], ["inverse_sqrt", "--warmup-updates", "1"], 0.005 / 2**0.5),
        ([], ["linear_decay", "--total-num-update", "4"], 0.0025),
        (["--lr-scheduler", "reduce_lr_on_plateau"], ["fixed"], 0.005),
        (["--lr-scheduler", "manual", "--update2lr", "{'1': 0.1}"], ["inverse_sqrt", "--warmup-updates", "1"], None),
    ],
)
def test_another_schedule_goes_on(before, after, rate, tiny_corpus, tmp_path) -> None:
    given = [tiny_corpus, *helpers.TINY_TRAINING, "--cpu", "--save-dir", tmp_path]
    helpers.run_fairseq("train", [*given, *before, "--max-update", 1])
    output = helpers.run_fairseq("train", [*given, "--lr-scheduler", *after, "--max-update", 2])
    (line,) = tiny_trainings.numbers(output, "^lr$")[:1]
    assert '"num_updates": "2"' in output and (rate is None or float(line["lr"]) == pytest.approx(rate, rel=1e-4))


@pytest.mark.parametrize(
    ("options", "rate", "told"),
    [
        (["--lr", "0.5"], 0.005, True),
        (["--lr", "0.5", "--optimizer-overrides", '{"lr": 0.5}'], 0.5, False),
        ([], 0.005, False),
    ],
)
def test_the_rate_of_a_plateau_is_the_checkpoint_s(options, rate, told, tiny_corpus, tmp_path) -> None:
    given = [tiny_corpus, *helpers.TINY_TRAINING, "--cpu", "--save-dir", tmp_path]
    given += ["--lr-scheduler", "reduce_lr_on_plateau"]
    helpers.run_fairseq("train", [*given, "--max-update", 1])
    output = helpers.run_fairseq("train", [*given, "--max-update", 2, *options])
    (line,) = tiny_trainings.numbers(output, "^lr$")[:1]
    assert float(line["lr"]) == rate
    assert ("the rate of the checkpoint, 0.005, " in output) == told


@pytest.mark.parametrize(
    ("overrides", "change", "told"),
    [
        (None, {"weight_decay": 0.5}, "the checkpoint's weight_decay, 0.0, not with 0.5"),
        (None, {"betas": (0.5, 0.6)}, "the checkpoint's betas, (0.9, 0.98), not with (0.5, 0.6)"),
        ({"weight_decay": 0.5}, {"weight_decay": 0.5}, ""),
        (None, {"lr": 0.5}, ""),
        (None, {}, ""),
    ],
)
def test_options_of_a_checkpoints_optimizer(overrides, change, told: str, caplog: pytest.LogCaptureFixture) -> None:
    """Tell which are kept, as fairseq replaces the given ones by them."""
    usual = {"lr": 0.1, "betas": (0.9, 0.98), "weight_decay": 0.0}
    saved, now = (
        torch.optim.Adam([torch.nn.Parameter(torch.ones(2))], **options) for options in (usual, {**usual, **change})
    )
    optimizer = FairseqOptimizer(None)
    optimizer._optimizer = now
    with caplog.at_level("WARNING", "fairseq_mega.compat.patches.training_options"):
        optimizer.load_state_dict(saved.state_dict(), overrides)
    assert told in caplog.text and bool(told) == bool(caplog.text)
    with pytest.raises(ValueError, match="--optimizer-overrides .*: momentum is not an option of this optimizer: give"):
        optimizer.load_state_dict(saved.state_dict(), {"momentum": 0.9})


@pytest.mark.parametrize(
    ("change", "remedy"),
    [
        (["--bf16"], "--precision bf16, which continues from float32"),
        (["--optimizer", "nag"], "the --optimizer of the checkpoint"),
    ],
)
def test_another_optimizer_than_the_checkpoints(change: List[str], remedy: str, tiny_corpus, tmp_path, capsys) -> None:
    given = [str(tiny_corpus), *map(str, helpers.TINY_TRAINING), "--cpu", "--save-dir", str(tmp_path)]
    helpers.run_fairseq("train", [*given, "--max-update", 1])
    assert console.run("train", [*given, "--max-update", "2", *change]) != 0
    assert remedy in capsys.readouterr().err
    if change == ["--bf16"]:
        assert "done training" in helpers.run_fairseq("train", [*given, "--max-update", 2, "--precision", "bf16"])


def test_numbers_that_no_table_has() -> None:
    error = IndexError("index out of range in self")
    assert is_users_error(error) and "binarise all splits with one dictionary" in describe(error)
    assert not is_users_error(IndexError("list index out of range"))


@pytest.mark.parametrize(
    ("limit", "option"),
    [("64", "--tokens-per-sample"), ("(64, 1024)", "--max-source-positions / --max-target-positions")],
)
def test_a_sequence_beyond_the_limit(limit: str, option: str) -> None:
    """Sequences that are no pairs have one limit; fairseq's message names none of the options."""
    error = Exception(f"Size of sample #5 is invalid (=66) since max_positions={limit}, skip this example with --x")
    assert f"longer than {option} of the training" in describe(error)


def test_numbers_of_numpy_are_numbers() -> None:
    error = Exception("Size of sample #1 is invalid (=(np.int32(6), np.int64(7))) since max_positions=(5, 1024)")
    assert describe(error).startswith("Size of sample #1 is invalid (=(6, 7)) since max_positions=(5, 1024)")


OF_A_TASK = {"image-classification": ("mega_image", "lra_cross_entropy"), "masked_lm": ("mega_masked_lm", "masked_lm")}


@pytest.mark.parametrize("task", ["lra-text", "lra-image", "speech_commands", *OF_A_TASK])
@pytest.mark.parametrize(
    "given",
    [[], ["label_smoothed_cross_entropy"], ["composite_loss", "--underlying-criterion", "lra_cross_entropy"]],
    ids=lambda words: "".join(words[:1]),
)
def test_some_tasks_have_a_criterion_of_their_own(task: str, given: List[str], capsys, tmp_path) -> None:
    """Others divide the loss of an example by its tokens, and of masked symbols by all; one of them is the default."""
    arch, own = OF_A_TASK.get(task, ("mega_lra", "lra_cross_entropy"))
    words = ["--task", task, "--arch", arch, "--optimizer", "adam", "--lr", "0.1", "--max-update", "1"]
    words += ["--criterion", *given] if given else []
    assert console.run("train", [str(tmp_path), *words]) == console.VALUE_ERROR
    named = (given or ["cross_entropy"])[0]
    message = f"--criterion {named}: --task {task} has its own: give --criterion {own}"
    assert message in capsys.readouterr().err


def test_a_criterion_that_needs_an_option(tiny_model, capsys) -> None:
    given = [str(tiny_model.data), "--path", str(tiny_model.checkpoint), "--cpu", "--criterion", "ctc"]
    assert console.run("validate", [*given, "--batch-size", "8"]) == console.VALUE_ERROR
    assert "error: --post-process is missing: this --criterion requires it" in capsys.readouterr().err


def test_words_of_hydra_are_ours(tiny_corpus, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(REGISTRIES["bpe"]["registry"], "strange", object)  # as another plugin may register one
    given = [str(tiny_corpus), *helpers.TINY_TRAINING, "--cpu", "--save-dir", str(tmp_path), "--bpe", "strange"]
    assert console.run("train", given) == console.FILE_ERROR
    assert "error: --bpe strange: fairseq has no settings for it" in capsys.readouterr().err


def test_a_neighbour_is_no_file_to_restore(tmp_path: Path) -> None:
    """Part 1 of a checkpoint in parts stands for the whole; a checkpoint of another number does not."""
    for name, there in (("checkpoint1.pt", False), ("checkpoint-shard0.pt", True)):
        (tmp_path / name.replace("1.", "10.")).touch()
        wanted = tmp_path / name.replace("-shard0", "")
        assert training_options._is_saved(str(wanted)) is there
