"""Additions to fairseq, torch and numpy in four folders; `apply` applies all of them.

``versions`` makes fairseq run on today's versions, ``files`` reads and writes safely, ``processes`` starts and ends
them, and ``features`` adds what fairseq lacks; each imports the folders before it alone. Every workaround is silent,
and changes nothing where the installed version does not need it. All apply to every fairseq command,
because a command imports the plugin before it parses arguments or loads a checkpoint. Nothing here imports torch before
it is needed, so that commands which need neither torch nor fairseq start at once.
"""

import functools
import importlib

WRAPPING = (  # modules that only wrap functions of fairseq
    "features.encoders",
    "features.no_weight_decay",
    "features.optimizing",
    "features.translating",
    "features.weight_copies",
    "processes.distributed",
)


@functools.lru_cache(maxsize=None)
def apply() -> None:
    """Apply every workaround; a second call does nothing."""
    from . import checks, hooks, patching
    from .versions import imports

    imports.import_fairseq()
    imports.remember_user_dir()

    from .features import interactive, overrides, precision, sharding
    from .files import card, expressions, loading, safe_globals, saving
    from .processes import batches, interruption, launching, skip_finished, workers
    from .versions import fairseq_repairs

    for module in WRAPPING:
        importlib.import_module(f"{__name__}.{module}")
    patching.wrap_all()
    safe_globals.allow_safe_globals()
    loading.load_data_only()
    expressions.evaluate_literals_only()
    fairseq_repairs.restore_removed_numpy_names()
    fairseq_repairs.keep_one_store()
    batches.redraw_batches_each_epoch()
    workers.start_workers_by_fork()
    sharding.shard_with_torch()
    hooks.at(
        "parse",  # after fairseq has parsed the options, the functions run from the last to the first
        precision.parse_precision,
        checks.check_parsed,
        precision.separate_bf16_from_tpu,
        launching.count_processes,
        interactive.read_whole_lines,
    )
    hooks.at("run", interruption.listen, precision.evaluate_under_autocast, launching.call_in_processes)
    hooks.at("build", checks.check_settings, precision.train_under_autocast)
    hooks.at("restore", saving.lock_save_dir, skip_finished.look_for_updates)
    hooks.at("batches", skip_finished.keep_batches)
    hooks.at("load", card.compare_for_training)
    hooks.at("read", card.read_card, overrides.refuse_unknown_overrides)
    hooks.at("write", sharding.help_to_save)
    hooks.at("state", card.add_card, precision.record_precision)
    hooks.at("infer", precision.remember_autocast)
    hooks.at("lines", interactive.warn_unknown_tokens)
