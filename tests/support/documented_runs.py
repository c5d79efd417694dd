"""The test that runs a command of the documents, or the reason why none does; marked commands are run as they stand."""

import re
from typing import Dict, NamedTuple, Optional, Union

from tests.support.documented_commands import Command


class RunBy(NamedTuple):
    """A test that runs the command."""

    test: str  # file::function, in tests


class Read(NamedTuple):
    """A reason why the program and the options of the command are checked alone."""

    why: str


ABBREVIATED = Read("stands for many commands: it leaves out options or names files that the reader has")
INSTALLS = Read("installs an environment: minutes, and a network")
TRAINS = Read("trains the paper's models for days; its smoke form is run")
TRANSLATES, SMOKES = "end_to_end/test_quickstart.py", "end_to_end/test_lra_scripts.py"
OWN_PAIRS = RunBy(f"{TRANSLATES}::test_the_commands_for_ones_own_text_run_as_they_stand")
TABLES_ON_LRA = RunBy(f"{SMOKES}::test_table2_figure5_and_resuming")
OTHER_TABLES_ON_LRA = RunBy(f"{SMOKES}::test_table3_and_figure4_share_a_run")
LM_TABLES = RunBy("end_to_end/test_lm_scripts.py::test_table5_and_figure6")
MINIATURE = RunBy("recipes/test_aggregate.py::test_the_table_has_the_cells_of_these_conditions")
SMOKE_FORM = RunBy("recipes/test_smoke.py::test_from_the_data_to_the_table")
PLACEHOLDER = re.compile(r"[A-Z][A-Z_]+|.*/[A-Z]+|\.\.\.")  # a word that the reader replaces

ELSEWHERE: Dict[str, Union[RunBy, Read]] = {  # by the beginning of a command, of which the longest counts
    "bash scripts/setup.sh": INSTALLS,
    "pip install": INSTALLS,
    "bash scripts/test_lowest.sh": INSTALLS,
    "bash scripts/test.sh": RunBy("end_to_end/test_checkout.py::test_tests_pass_in_a_clone"),
    "bash scripts/gpu_check.sh": RunBy("test_gpu_check.py::test_every_stage_works"),
    "python scripts/build_wheels.py": RunBy("test_build_wheels.py::test_a_wheel_and_what_it_needs"),
    "python setup.py build_ext --inplace": RunBy("test_packaging.py::test_extension_in_the_wheel_is_used"),
    "python -m tests.simulator.planted_defects": RunBy("simulator/test_planted_defects.py::test_a_defect_is_noticed"),
    "python -m fairseq_mega.lab.benchmarks": Read("measures for minutes; tests/benchmarks runs measurements in small"),
    "bash scripts/quickstart.sh": RunBy(f"{TRANSLATES}::test_a_run_scores_every_sentence_and_tells_what_was_made"),
    "bash scripts/quickstart.sh --task lm": RunBy(
        "end_to_end/test_quickstart_lm.py::test_a_run_scores_every_byte_and_writes_a_text"
    ),
    "fairseq-mega-prepare own-pairs": OWN_PAIRS,
    "fairseq-mega-train outputs/own": OWN_PAIRS,
    "fairseq-mega-interactive outputs/own": OWN_PAIRS,
    "fairseq-mega-reproduce mega/table2/text/mega_chunk --checkpoint published": RunBy(
        "recipes/test_given_weights.py::test_from_the_server_to_the_table"
    ),
    "bash scripts/compare_classifiers.sh": RunBy("end_to_end/test_compare_classifiers.py::test_texts"),
    "bash scripts/compare_language_models.sh": RunBy("end_to_end/test_lm_scripts.py::test_compare"),
    "bash scripts/prepare_gcide.sh": RunBy(
        "end_to_end/test_prepare_lm_scripts.py::test_gcide_is_taken_from_the_fetched_package"
    ),
    "bash scripts/prepare_text_lm.sh": Read("reads files that the reader has downloaded"),
    "bash scripts/mega_table2_lra.sh": TABLES_ON_LRA,
    "bash scripts/mega_figure5_stability.sh": TABLES_ON_LRA,
    "bash scripts/mega_table3_attention_functions.sh": OTHER_TABLES_ON_LRA,
    "bash scripts/mega_figure4_ablations.sh": OTHER_TABLES_ON_LRA,
    "bash scripts/mega_table4_speech.sh": RunBy(f"{SMOKES}::test_table4"),
    "bash scripts/mega_table5_lm.sh": LM_TABLES,
    "bash scripts/mega_figure6_context.sh": LM_TABLES,
    "bash scripts/mega_table6_imagenet.sh": TRAINS,
    "bash scripts/mega_table6_imagenet.sh --smoke": SMOKE_FORM,
    "bash scripts/mega_table7_wmt16.sh": TRAINS,
    "bash scripts/mega_table7_wmt16.sh --smoke": RunBy("recipes/test_runner.py::test_translation"),
    "bash scripts/megalodon_": SMOKE_FORM,
    "bash scripts/megalodon_table4_imagenet.sh --data": TRAINS,
    "fairseq-mega-reproduce megalodon/figure1 --seeds 1": SMOKE_FORM,
    "fairseq-hydra-train": RunBy("recipes/test_command_line.py::test_hydra_trains_a_recipe"),
    "fairseq-mega-prepare": ABBREVIATED,
    "fairseq-mega-prepare pg19": RunBy("corpora/test_pg19.py::test_from_the_bucket"),
    "fairseq-mega-qa": RunBy("reports/test_question_answering.py::test_answers_of_a_model"),
    "fairseq-mega-lm-eval": RunBy("reports/test_harness.py::test_tasks_of_local_files"),
    "python -m fairseq_mega.lab.evaluate.language_model": RunBy(
        "cli/test_evaluate_lm.py::test_finished_results_are_kept_and_printed"
    ),
    "fairseq-mega-reproduce mega/table2": RunBy("recipes/test_runner.py::test_classifiers"),
    "fairseq-mega-reproduce mega/table6": TRAINS,
    "fairseq-mega-reproduce comparison/bytes": RunBy("end_to_end/test_lm_scripts.py::test_compare"),
    "fairseq-mega-reproduce --launcher": RunBy("recipes/test_launchers.py::test_jobs_of_slurm"),
    "fairseq-mega-reproduce miniature": MINIATURE,
    "python -m fairseq_mega.lab.report miniature": MINIATURE,
    "python -m fairseq_mega.lab.report translations": ABBREVIATED,
    "python -m fairseq_mega.lab.report decoding": RunBy("reports/test_decoding_plot.py::test_the_plot_is_written"),
    "fairseq-mega-report --html": RunBy("reports/test_page.py::test_the_page_is_whole_and_needs_no_other_file"),
    "fairseq-mega-report --write": RunBy("reports/test_documents.py::test_write_and_check"),
    "fairseq-mega-report curves": RunBy("reports/test_page.py::test_curves_of_a_log_that_was_interrupted"),
    "fairseq-mega-report classifiers": RunBy(
        "end_to_end/test_compare_classifiers.py::test_table_and_plot_of_several_folders"
    ),
    "fairseq-mega-report pathfinder-page": RunBy("reports/test_pathfinder_page.py::test_the_page_shows_both_labels"),
    "grep": Read("filters what the command before it prints"),
    "cut": Read("filters what the command before it prints"),
    "echo": Read("the next command reads what it prints"),
    "for model in mega": Read("the loop around the next command"),
    "done; done": Read("the end of the loop"),
}


def elsewhere(command: Command) -> Optional[Union[RunBy, Read]]:
    """Return the test that runs a command without a mark, or the reason why none does; None where both are missing."""
    line = " ".join(command.words)
    found = max((beginning for beginning in ELSEWHERE if line.startswith(beginning)), key=len, default=None)
    if found is not None:
        return ELSEWHERE[found]
    return ABBREVIATED if any(PLACEHOLDER.fullmatch(word) for word in command.words) else None
