"""Numbers that an option of fairseq cannot have are refused when the command line is read, in one line."""

import math
import re
from typing import Any, Dict, List

import pytest
from fairseq import options

from fairseq_mega.compat.patches.ranges import RANGES, out_of_range

PARSERS = ("training", "generation", "interactive_generation", "eval_lm", "validation")
TINY = ["--arch", "mega_tiny"]
BAD: Dict[str, List[Any]] = {
    **{name: [0, -2] for name in ("sampling_topk", "diverse_beam_groups", "patience", "upsample_primary")},
    **{name: [-2] for name in RANGES if name.startswith("keep_")},
    "sampling_topp": [0.0, 2.0, -0.5, math.nan],
    "max_len_a": [-1.0, 1e30],
    "max_len_b": [-1, 10**9],
    "temperature": [0.0, -1.0],
    "label_smoothing": [1.5, -0.1],
    "ema_decay": [2.0],
    "lenpen": [101.0, -1e30, math.nan],
    "clip_norm": [-1.0, math.inf],
    "lr": [[0.1, -0.1], [math.nan]],
    "update_freq": [[1, 0], []],
}


@pytest.mark.parametrize("name", RANGES)
def test_numbers_outside_are_refused(name):
    for number in BAD.get(name, [-1]):
        message = out_of_range({name: number})
        assert message is not None and message.startswith(f"--{name.replace('_', '-')} "), number


@pytest.mark.parametrize("kind", PARSERS)
def test_defaults_are_inside(kind):
    parser = getattr(options, f"get_{kind}_parser")()
    defaults = {action.dest: action.default for action in parser._actions}
    assert len(defaults) > 100 and out_of_range(defaults) is None


@pytest.mark.parametrize(
    "given, words",
    [
        ({"shard_id": 2, "num_shards": 2}, "--shard-id 2: give 0 to 1, as --num-shards is 2"),
        ({"distributed_rank": 2, "distributed_world_size": 2}, "--distributed-rank 2: give 0 to 1"),
        ({"distributed_rank": 1, "distributed_world_size": 1}, "--distributed-rank 1: give 0 to 0"),
        ({"unkpen": math.nan}, "--unkpen nan: give a finite number"),
        ({"stop_min_lr": -math.inf}, "--stop-min-lr -inf: give a finite number"),
        ({"beam": 2, "nbest": 3}, "--nbest 3 is above --beam 2"),
    ],
)
def test_numbers_that_contradict_each_other(given: Dict[str, Any], words: str) -> None:
    assert re.match(words, out_of_range(given) or "")


@pytest.mark.parametrize(
    "kind, words, message",
    [
        ("generation", ["--sampling", "--sampling-topp", "2"], "--sampling-topp 2.0: give a number above 0, up to 1"),
        ("generation", ["--source-lang", "en"], "--source-lang en without --target-lang has no effect"),
        (
            "interactive_generation",
            ["--target-lang", "de"],
            "--target-lang de without --source-lang has no effect",
        ),
        ("generation", ["--distributed-world-size", "2"], "--distributed-world-size 2: this command works in one"),
        ("generation", ["--diverse-beam-strength", "2"], "--diverse-beam-strength 2: add --diverse-beam-groups"),
        ("generation", ["--tokenizer", "moses"], "--tokenizer moses requires both languages: give --source-lang and"),
        ("generation", ["--num-shards", "2"], "--num-shards 2: this command always uses all data"),
        ("generation", ["--max-tokens", "0"], "--max-tokens 0: give a whole number above 0"),
        ("generation", ["--retain-iter-history"], "--retain-iter-history requires a model with iterative refinement"),
        ("interactive_generation", ["--prefix-size", "3"], "--prefix-size requires references"),
        (
            "training",
            [*TINY, "--eval-bleu", "--best-checkpoint-metric", "bleu"],
            "--best-checkpoint-metric bleu: the highest is the best",
        ),
        (
            "training",
            [*TINY, "--maximize-best-checkpoint-metric"],
            "--best-checkpoint-metric loss: the lowest is the best",
        ),
        (
            "training",
            [*TINY, "--distributed-world-size", "0"],
            "--distributed-world-size 0: give a whole number above 0",
        ),
        ("training", [*TINY, "--log-interval", "0"], "--log-interval 0: give a whole number above 0"),
    ],
)
def test_the_command_line(kind: str, words: List[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    parser = getattr(options, f"get_{kind}_parser")()
    with pytest.raises(SystemExit) as ended:
        options.parse_args_and_arch(parser, ["data", *words])
    assert ended.value.code == 2
    assert f"error: {message}" in capsys.readouterr().err


@pytest.mark.parametrize(("block", "window", "refused"), [(8, 16, True), (8, 8, True), (8, 7, False), (8, 0, False)])
def test_a_window_within_the_block(block: int, window: int, refused: bool) -> None:
    said = out_of_range({"tokens_per_sample": block, "context_window": window})
    assert (said is not None and said.startswith(f"--context-window {window}: give less than --tok")) == refused
