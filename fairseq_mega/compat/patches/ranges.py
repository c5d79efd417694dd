"""Ranges of fairseq's numeric options; for other numbers fairseq ends with a traceback or ignores the option."""

import math
import typing


class Range(typing.NamedTuple):
    """Numbers that an option accepts.

    Attributes:
        words: description of the range, for the message.
        holds: returns whether a number is in the range.
    """

    words: str
    holds: typing.Callable[[float], bool]


ANY_FROM_1 = Range("a whole number above 0", lambda number: number >= 1)
ANY_FROM_0 = Range("a number of at least 0", lambda number: number >= 0)
ABOVE_0 = Range("a number above 0", lambda number: number > 0)
SHARE = Range("a number from 0 to 1", lambda number: 0 <= number <= 1)
FROM_1_OR_NONE = Range("a whole number above 0, or -1 for none", lambda number: number >= 1 or number == -1)
FROM_0_OR_NONE = Range("a whole number of at least 0, or -1 for none", lambda number: number >= -1)

RANGES: typing.Dict[str, Range] = {
    **dict.fromkeys(
        (
            *("beam", "nbest", "update_freq", "max_tokens", "batch_size", "max_tokens_valid", "batch_size_valid"),
            *("required_batch_size_multiple", "num_shards", "log_interval", "save_interval", "validate_interval"),
            *("max_source_positions", "max_target_positions", "tokens_per_sample", "distributed_world_size"),
            *("max_valid_steps", "softmax_batch", "required_seq_len_multiple", "checkpoint_shard_count"),
        ),
        ANY_FROM_1,
    ),
    **dict.fromkeys(
        (
            *("num_workers", "seed", "shard_id", "min_len", "no_repeat_ngram_size"),
            *("prefix_size", "max_epoch", "max_update", "stop_time_hours", "clip_norm", "save_interval_updates"),
            *("validate_interval_updates", "validate_after_updates", "warmup_updates", "context_window"),
            *("data_buffer_size", "curriculum", "lr", "weight_decay", "buffer_size"),
            *("adam_eps", "num_batch_buckets", "distributed_rank", "ignore_prefix_size", "truncation_length"),
        ),
        ANY_FROM_0,
    ),
    **dict.fromkeys(("sampling_topk", "diverse_beam_groups", "patience", "upsample_primary"), FROM_1_OR_NONE),
    **dict.fromkeys(
        ("keep_interval_updates", "keep_last_epochs", "keep_best_checkpoints", "keep_interval_updates_pattern"),
        FROM_0_OR_NONE,
    ),
    **dict.fromkeys(("label_smoothing", "ema_decay"), SHARE),
    "sampling_topp": Range("a number above 0, up to 1, or -1 for none", lambda number: 0 < number <= 1 or number == -1),
    "max_len_a": Range("a number from 0 to 1000", lambda number: 0 <= number <= 1000),
    "max_len_b": Range("a whole number from 0 to 1000000", lambda number: 0 <= number <= 10**6),
    "temperature": ABOVE_0,
    "lenpen": Range("a number from -100 to 100", lambda number: abs(number) <= 100),  # an exponent of lengths
}


def out_of_range(given: typing.Mapping[str, typing.Any]) -> typing.Optional[str]:
    """Return which option has a number out of its range, or None.

    Args:
        given: all options by the parser's names.
    """
    for name, allowed in RANGES.items():
        value = given.get(name)
        numbers = value if isinstance(value, (list, tuple)) else [value]
        if not numbers:
            return f"--{name.replace('_', '-')} '': give {allowed.words}, or several separated by commas"
        for number in numbers:
            if isinstance(number, (int, float)) and not (math.isfinite(number) and allowed.holds(number)):
                shown = ",".join(map(str, numbers))
                return f"--{name.replace('_', '-')} {shown}: give {allowed.words}"
    for name, value in given.items():
        if isinstance(value, float) and not math.isfinite(value):
            return f"--{name.replace('_', '-')} {value}: give a finite number"
    shard, shards = given.get("shard_id"), given.get("num_shards")
    if isinstance(shard, int) and isinstance(shards, int) and shard >= shards:
        return f"--shard-id {shard}: give 0 to {shards - 1}, as --num-shards is {shards}"
    rank, processes = given.get("distributed_rank"), given.get("distributed_world_size")
    if isinstance(rank, int) and isinstance(processes, int) and rank >= processes:
        return f"--distributed-rank {rank}: give 0 to {processes - 1}, as --distributed-world-size is {processes}"
    block, window = given.get("tokens_per_sample"), given.get("context_window")
    if isinstance(block, int) and isinstance(window, int) and window >= block:
        return (
            f"--context-window {window}: give less than --tokens-per-sample, which is {block} and includes the window"
        )
    beam, best = given.get("beam"), given.get("nbest")
    if isinstance(beam, int) and isinstance(best, int) and best > beam:
        return f"--nbest {best} is above --beam {beam}: give --nbest {beam} or less, or a larger --beam"
    return None
