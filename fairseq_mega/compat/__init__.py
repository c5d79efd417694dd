"""Additions to fairseq, torch and numpy in four folders; `apply` applies all of them.

``versions`` makes fairseq run on today's versions, ``files`` reads and writes safely, ``processes`` starts and ends
them, and ``features`` adds what fairseq lacks; each imports the folders before it alone. Every workaround is idempotent
and silent, and changes nothing where the installed version does not need it. All apply to every fairseq command,
because a command imports the plugin before it parses arguments or loads a checkpoint. Nothing here imports torch before
it is needed, so that commands which need neither torch nor fairseq start at once.
"""


def prepare() -> None:
    """Raise ImportError where torch is too old."""
    from .versions import oldest_torch

    oldest_torch.require_torch()


def apply() -> None:
    """Apply every workaround; a second call does nothing.

    Raises ImportError where torch is too old.
    """
    from . import checks, errors, hooks
    from .features import (
        adam,
        autocast,
        encoders,
        gradient_norm,
        interactive,
        master_weights,
        no_weight_decay,
        overrides,
        precision,
        sharding,
        translating,
        weight_average,
    )
    from .files import binarised, card, expressions, loading, safe_globals, saving
    from .processes import batches, distributed, interruption, launching, out_of_memory, skip_finished, workers
    from .versions import apex, composing, copying, imports, numpy_names, oldest_torch

    oldest_torch.require_torch()
    imports.import_fairseq()
    imports.undo_leaked_logging()
    imports.remember_user_dir()
    safe_globals.allow_safe_globals()
    loading.load_data_only()
    loading.read_the_named_file()
    loading.unpack_archives_into_their_folder()
    expressions.evaluate_literals_only()
    numpy_names.restore_removed_numpy_names()
    composing.keep_one_store()
    composing.keep_references()
    copying.copy_states_of_tasks()
    binarised.compare_binarised_files()
    batches.keep_last_batch()
    batches.refuse_to_score_nothing()
    batches.redraw_batches_each_epoch()
    batches.go_on_at_the_same_place()
    saving.copy_checkpoints_atomically()
    card.compare_for_use()
    encoders.compare_encoders()
    workers.start_workers_by_fork()
    workers.end_workers_with_their_batches()
    workers.end_background_loading_with_its_reader()
    weight_average.copy_integers_into_the_average()
    launching.join_processes_of_hydra()
    distributed.allow_torch_ddp_on_the_cpu()
    distributed.gather_values_on_the_cpu()
    distributed.validate_with_one_set_of_buffers()
    distributed.score_no_empty_batches()
    sharding.shard_with_torch()
    autocast.generate_under_autocast()
    master_weights.keep_master_weights()
    no_weight_decay.mark_float32_copies()
    skip_finished.save_last_epochs()
    interruption.end_with_a_checkpoint()
    out_of_memory.end_training_without_memory()
    translating.read_the_only_pair()
    translating.score_validations_without_words()
    apex.fuse_adam_where_it_runs()
    adam.step_at_once()
    gradient_norm.measure_where_the_gradients_are()
    errors.print_in_one_line()
    hooks.at(
        "parse",  # after fairseq has parsed the options, the functions run from the last to the first
        precision.parse_precision,
        checks.check_parsed,
        precision.separate_bf16_from_tpu,
        launching.parse_local_rank,
        interactive.read_whole_lines,
    )
    hooks.at("run", interruption.listen, autocast.evaluate_under_autocast, launching.call_in_processes)
    hooks.at("build", checks.check_settings, sharding.refuse_what_cannot_be_sharded, autocast.train_under_autocast)
    hooks.at("restore", saving.lock_save_dir, skip_finished.look_for_updates)
    hooks.at("batches", skip_finished.keep_batches)
    hooks.at("load", card.compare_for_training)
    hooks.at("read", card.read_card, overrides.refuse_unknown_overrides)
    hooks.at("write", sharding.help_to_save, skip_finished.record_scores)
    hooks.at("state", card.add_card, autocast.record_precision)
    hooks.at("infer", autocast.remember_autocast)
    hooks.at("lines", interactive.drop_byte_order_marks, interactive.warn_unknown_tokens)
    hooks.at("sentence", interactive.drop_byte_order_mark)
    hooks.at("binarize", interactive.warn_unknown_tokens_of_sentence)
