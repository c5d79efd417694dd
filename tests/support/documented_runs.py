"""What becomes of each command of the documents in the tests: run here, run by another test, or only read."""

from typing import Dict, List, NamedTuple, Tuple, Union


class Run(NamedTuple):
    """It is run, with options at its end that make it small."""

    options: str = ""
    stdin: str = ""
    prints: str = ""  # and among what it prints is this
    data: str = ""  # folder that DATA stands for; SAVE stands for that with "-save"


class RunBy(NamedTuple):
    """Another test runs it."""

    test: str  # file::function, in tests


class Read(NamedTuple):
    """Its program and its options are checked alone."""

    why: str


Fate = Union[Run, RunBy, Read]

ABBREVIATED = Read("stands for many commands: it leaves out options or names files that the reader has")
INSTALLS = Read("installs an environment: minutes, and a network")
MEASURES = Read("measures for minutes; tests/benchmarks runs measurements in small")
TRAINS = Read("trains the paper's models for days; its smoke form is run")
DOWNLOADED = Read("reads files that the reader has downloaded")
SEVERAL = Read("takes several processes; tests/end_to_end/test_torchrun.py launches two on the CPU")
CLASSIFIER = (
    "--encoder-layers 1 --encoder-embed-dim 8 --encoder-hidden-dim 16 --encoder-ffn-embed-dim 16 --z-dim 8 --n-dim 2"
)
TINY = f"--cpu --num-workers 0 --max-update 2 {CLASSIFIER} --classifier-out-dim 8"
DECODER = (
    "--decoder-layers 1 --decoder-embed-dim 8 --decoder-hidden-dim 16 --decoder-z-dim 8 --decoder-ffn-embed-dim 16"
)
ENCODER = DECODER.replace("decoder", "encoder")
LISTOPS = "--count 60 --min-length 5 --max-length 20 --workers 1"
SHORT = "--cpu --num-workers 0 --max-update 2"
TRANSLATES, SMOKES = "end_to_end/test_quickstart.py", "end_to_end/test_lra_scripts.py"
QUICKSTART = RunBy(f"{TRANSLATES}::test_a_run_scores_every_sentence_and_tells_what_was_made")
QUICKSTART_LM = RunBy("end_to_end/test_quickstart_lm.py::test_a_run_scores_every_byte_and_writes_a_text")
FIVE = RunBy(f"{TRANSLATES}::test_the_five_commands_of_the_example_run_as_they_stand")
TESTS = RunBy("end_to_end/test_checkout.py::test_tests_pass_in_a_clone")
TABLES_ON_LRA = RunBy(f"{SMOKES}::test_table2_figure5_and_resuming")
OTHER_TABLES_ON_LRA = RunBy(f"{SMOKES}::test_table3_and_figure4_share_a_run")
SPEECH = RunBy(f"{SMOKES}::test_table4")
LM_TABLES = RunBy("end_to_end/test_lm_scripts.py::test_table5_and_figure6")
ON_GPUS = RunBy("test_gpu_check.py::test_every_stage_works")
COMPARES = RunBy("end_to_end/test_compare_classifiers.py::test_texts")
COMPARES_LM = RunBy("end_to_end/test_lm_scripts.py::test_compare")
DEFECTS = RunBy("simulator/test_planted_defects.py::test_a_defect_is_noticed")
MINIATURE = RunBy("recipes/test_cells.py::test_the_table_has_the_cells_of_these_conditions")
FETCHES_GCIDE = RunBy("end_to_end/test_prepare_lm_scripts.py::test_gcide_is_taken_from_the_fetched_package")
PG19 = RunBy("corpora/test_pg19.py::test_from_the_bucket")
ASKS = RunBy("reports/test_question_answering.py::test_answers_of_a_model")
SMOKE_FORM = RunBy("recipes/test_smoke.py::test_from_the_data_to_the_table")
OWN_SENTENCES = "the first words\n"

# In the order of each document; a beginning names the command.
FATES: Dict[str, List[Tuple[str, Fate]]] = {
    "README.md": [
        ("bash scripts/quickstart.sh", QUICKSTART),
        ("bash scripts/quickstart.sh --task lm", QUICKSTART_LM),
        ("bash scripts/test.sh", TESTS),
        ("fairseq-mega-inspect CHECKPOINT --draw", ABBREVIATED),
        ("bash scripts/setup.sh", INSTALLS),
        ("fairseq-mega-train data-bin", ABBREVIATED),
        ("fairseq-mega-generate data-bin", ABBREVIATED),
        ("fairseq-mega-interactive ...", ABBREVIATED),
        ("fairseq-mega-eval-lm data-bin", ABBREVIATED),
        ("fairseq-mega-interactive ... --decode-weights", ABBREVIATED),
        ("fairseq-mega-prepare listops", Run(LISTOPS)),
        ("fairseq-mega-classify outputs/lra/listops", Run("--cpu", "[MAX 1 2 ]\n", "[MAX 1 2 ]")),
        ("fairseq-mega-reproduce --list", Run(prints="mega/table2/listops/mega ")),
        ("fairseq-mega-inspect CHECKPOINT", ABBREVIATED),
        ("fairseq-mega-reproduce mega/table2/listops", RunBy("recipes/test_runner.py::test_classifiers")),
        ("fairseq-mega-report --html", RunBy("reports/test_page.py::test_the_page_is_whole_and_needs_no_other_file")),
        ("fairseq-mega-report --write", RunBy("reports/test_documents.py::test_write_and_check")),
        ("fairseq-mega-convert --input OLD.pt", Run(prints="largest difference of both layouts")),
        ("bash scripts/gpu_check.sh", ON_GPUS),
        ("python scripts/build_wheels.py", RunBy("test_build_wheels.py::test_a_wheel_and_what_it_needs")),
        ("python -m fairseq_mega.benchmarks layer", MEASURES),
    ],
    "examples/from_the_published_code.md": [
        ("fairseq-mega-train DATA ...", ABBREVIATED),
        ("python -m fairseq_mega.reports translations", ABBREVIATED),
        ("fairseq-mega-reproduce --launcher", RunBy("recipes/test_launchers.py::test_jobs_of_slurm")),
        ("fairseq-mega-reproduce --list", Run(prints="mega/table7/en-de/transformer ")),
        ("fairseq-mega-convert --input", Run(data="text", prints="largest difference of both layouts")),
        ("fairseq-mega-inspect", Run(data="text", prints="decoder layer 2")),
        ("fairseq-mega-reproduce mega/table6/imagenet/mega", TRAINS),
        (
            "fairseq-mega-train DATA --seed 1 --ddp-backend c10d --find",
            Run(TINY, data="listops", prints="done training"),
        ),
        ("fairseq-mega-validate DATA", Run("--cpu", data="listops", prints="accuracy")),
        (
            "fairseq-mega-train DATA --seed 1 --ddp-backend c10d --find",
            Run(TINY, data="speech", prints="done training"),
        ),
        ("fairseq-mega-train DATA --seed 1 --ddp-backend no_c10d", Run(f"{SHORT} {DECODER}", data="text")),
        ("fairseq-mega-eval-lm DATA", Run("--cpu", data="text", prints="once")),
        (
            "fairseq-mega-train DATA --seed 1 --ddp-backend c10d --valid-subset",
            Run(f"{SHORT} {ENCODER} {DECODER}", data="pairs", prints="bleu"),
        ),
        ("fairseq-mega-generate DATA", Run("--cpu", data="pairs", prints="D-7")),
    ],
    "examples/kernels/README.md": [
        ("bash scripts/setup.sh", INSTALLS),
        ("python setup.py build_ext --inplace", RunBy("test_packaging.py::test_extension_in_the_wheel_is_used")),
        ("python -m fairseq_mega.benchmarks kernels --preset linear", MEASURES),
        ("python -m fairseq_mega.benchmarks decoding --width 512", MEASURES),
        ("python -m fairseq_mega.reports decoding", RunBy("reports/test_decoding_plot.py::test_the_plot_is_written")),
        ("bash scripts/test.sh", TESTS),
        ("python -m tests.simulator.planted_defects", DEFECTS),
        ("bash scripts/test_lowest.sh", INSTALLS),
        ("bash scripts/gpu_check.sh", ON_GPUS),
        ("bash scripts/gpu_check.sh --python", ON_GPUS),
        ("python -m fairseq_mega.benchmarks kernels --preset issue", MEASURES),
        ("python -m fairseq_mega.benchmarks decoding --models", MEASURES),
        ("python -m tests.simulator.planted_defects --only", DEFECTS),
    ],
    "examples/language_modeling/README.md": [
        ("bash scripts/quickstart.sh --task lm", QUICKSTART_LM),
        ("bash scripts/setup.sh", INSTALLS),
        ("bash scripts/prepare_text_lm.sh", Run("--skip-setup")),
        ("fairseq-mega-train outputs/text", Run(SHORT, prints="done training")),
        ("fairseq-mega-eval-lm outputs/text", Run("--cpu", prints="once")),
        ("fairseq-mega-interactive outputs/text", Run("--cpu", OWN_SENTENCES, "D-0")),
        (
            "python -m fairseq_mega.cli.evaluate_lm",
            RunBy("cli/test_evaluate_lm.py::test_finished_results_are_kept_and_printed"),
        ),
        ("fairseq-mega-train DATA", SEVERAL),
        ("fairseq-mega-train DATA", SEVERAL),
        ("fairseq-mega-train DATA", SEVERAL),
        ("fairseq-mega-train DATA", SEVERAL),
        ("python -m fairseq_mega.benchmarks chunk-parallel", MEASURES),
        ("fairseq-mega-inspect outputs/text", Run(prints="16 GiB: ")),
        ("fairseq-mega-inspect mega_lm_enwik8_base", Run(prints="80 GiB: ")),
        ("fairseq-mega-train DATA", SEVERAL),
        ("bash scripts/mega_table5_lm.sh", LM_TABLES),
        ("bash scripts/mega_figure6_context.sh", LM_TABLES),
        ("bash scripts/compare_language_models.sh", COMPARES_LM),
        ("python -m fairseq_mega.benchmarks decoding", MEASURES),
        ("python -m fairseq_mega.benchmarks decoding --models mega,mega-full", MEASURES),
        ("python -m fairseq_mega.benchmarks lm-length", MEASURES),
    ],
    "examples/long_range_arena/README.md": [
        ("bash scripts/setup.sh", INSTALLS),
        ("fairseq-mega-prepare listops", Run(LISTOPS)),
        ("fairseq-mega-train outputs/lra/listops", Run(TINY, prints="done training")),
        ("fairseq-mega-validate outputs/lra/listops", Run("--cpu", prints="correct")),
        ("bash scripts/mega_table2_lra.sh --help", Run(prints="usage: ")),
        ("fairseq-mega-prepare DATASET", ABBREVIATED),
        (
            "fairseq-mega-report pathfinder-page",
            RunBy("reports/test_pathfinder_page.py::test_the_page_shows_both_labels"),
        ),
        ("fairseq-mega-prepare own-texts", Run()),
        ("fairseq-mega-train outputs/own-texts", Run(SHORT, prints="done training")),
        ("echo What a film!", Read("the next command reads what it prints")),
        ("fairseq-mega-classify outputs/own-texts", Run("--cpu", "What a film!\n", "What a film!")),
        ("bash scripts/mega_table2_lra.sh", TABLES_ON_LRA),
        ("bash scripts/mega_table3_attention_functions.sh", OTHER_TABLES_ON_LRA),
        ("bash scripts/mega_figure4_ablations.sh", OTHER_TABLES_ON_LRA),
        ("bash scripts/mega_figure5_stability.sh", TABLES_ON_LRA),
        ("fairseq-mega-reproduce --list", Run(prints="mega/table2/listops/s4d ")),
        ("fairseq-mega-reproduce mega/table2/text/mega_chunk --print", Run(prints="--arch mega_lra")),
        (
            "fairseq-mega-reproduce mega/table2/text/mega_chunk --smoke",
            RunBy("recipes/test_runner.py::test_classifiers"),
        ),
        ("fairseq-hydra-train", RunBy("models/test_presets.py::test_hydra_trains_a_preset")),
        ("fairseq-mega-reproduce miniature", MINIATURE),
        ("python -m fairseq_mega.reports miniature", MINIATURE),
        ("python -m fairseq_mega.benchmarks lra-speed", MEASURES),
        ("bash scripts/compare_classifiers.sh", COMPARES),
        ("fairseq-mega-prepare listops --count 30000", Run(f"{LISTOPS} --out outputs/short")),
        (
            "fairseq-mega-report classifiers",
            RunBy("end_to_end/test_compare_classifiers.py::test_table_and_plot_of_several_folders"),
        ),
    ],
    "examples/megalodon/README.md": [
        ("bash scripts/setup.sh", INSTALLS),
        ("fairseq-mega-prepare own-documents", Run("--vocab-size 300")),
        ("fairseq-mega-train outputs/own", Run(f"{SHORT} {DECODER} --decoder-chunk-size 16", prints="done training")),
        ("fairseq-mega-eval-lm outputs/own", Run("--cpu", prints="Loss (base 2)")),
        ("bash scripts/prepare_text_lm.sh", Run("--skip-setup")),
        ("fairseq-mega-prepare own-documents", ABBREVIATED),
        ("fairseq-mega-prepare pg19", PG19),
        ("python -m fairseq_mega.cli.evaluate_lm", ABBREVIATED),
        ("bash scripts/megalodon_table4_imagenet.sh", SMOKE_FORM),
        ("bash scripts/megalodon_table5_pg19.sh", SMOKE_FORM),
        ("bash scripts/megalodon_table6_lra.sh", SMOKE_FORM),
        ("bash scripts/megalodon_table7_speech.sh", SMOKE_FORM),
        ("bash scripts/megalodon_table8_lm.sh", SMOKE_FORM),
        ("bash scripts/megalodon_figure4_speed.sh", SMOKE_FORM),
        ("bash scripts/megalodon_figure5_context.sh", SMOKE_FORM),
        ("fairseq-mega-reproduce --list", Run(prints="megalodon/table8/")),
        ("fairseq-mega-inspect ARCH", ABBREVIATED),
        ("python -m fairseq_mega.benchmarks chunk-parallel", MEASURES),
        ("fairseq-mega-qa narrative_qa", ASKS),
        ("fairseq-mega-qa qasper", ASKS),
        ("fairseq-mega-qa qmsum", ASKS),
        ("bash scripts/compare_language_models.sh", COMPARES_LM),
        ("bash scripts/compare_classifiers.sh", COMPARES),
        ("bash scripts/prepare_text_lm.sh", DOWNLOADED),
        ("bash scripts/prepare_gcide.sh", FETCHES_GCIDE),
    ],
    "examples/imagenet/README.md": [
        ("bash scripts/setup.sh", INSTALLS),
        ("fairseq-mega-train my_images", Run("--cpu --num-workers 0 --max-epoch 6", prints="done training")),
        ("fairseq-mega-validate my_images", Run("--cpu", prints="correct")),
        ("fairseq-mega-classify my_images", Run("--cpu", prints="new.jpg")),
        ("fairseq-mega-prepare imagenet", Run("--archives archives --any-archives")),
        ("bash scripts/mega_table6_imagenet.sh --data outputs/imagenet", TRAINS),
        ("bash scripts/mega_table6_imagenet.sh --data outputs/imagenet --models mega", TRAINS),
        ("bash scripts/megalodon_table4_imagenet.sh --data outputs/imagenet", TRAINS),
        ("fairseq-mega-reproduce table6", Run(prints="--arch mega_image_base")),
        ("bash scripts/mega_table6_imagenet.sh --smoke", SMOKE_FORM),
    ],
    "examples/published_defaults.md": [("fairseq-mega-prepare speech-commands", ABBREVIATED)],
    "examples/speech_commands/README.md": [
        ("bash scripts/setup.sh", INSTALLS),
        ("fairseq-mega-prepare speech-commands", Run("--dir words --any-count")),
        ("fairseq-mega-train outputs/lra/speech", Run(TINY, prints="done training")),
        ("fairseq-mega-validate outputs/lra/speech", Run("--cpu", prints="correct")),
        ("bash scripts/mega_table4_speech.sh", SPEECH),
        ("fairseq-mega-classify outputs/lra/speech", Run("--cpu", prints="word.wav")),
        ("fairseq-mega-prepare recordings", Run()),
        ("fairseq-mega-train outputs/recordings", Run(f"{TINY} --batch-size 3", prints="done training")),
        ("fairseq-mega-classify outputs/recordings", Run("--cpu", prints="new.wav")),
        ("bash scripts/mega_table4_speech.sh --smoke", SPEECH),
    ],
    "examples/translation/README.md": [
        ("bash scripts/setup.sh", INSTALLS),
        ("bash scripts/quickstart.sh", QUICKSTART),
        ("bash scripts/quickstart.sh --text", QUICKSTART),
        ("python -m fairseq_mega.corpora.translation own-text", FIVE),
        ("python -m fairseq_mega.corpora.translation subwords", FIVE),
        ("fairseq-preprocess", FIVE),
        ("fairseq-mega-train outputs/own", FIVE),
        ("fairseq-mega-interactive outputs/own", FIVE),
        ("fairseq-mega-inspect CHECKPOINT --attention", ABBREVIATED),
        ("fairseq-mega-report translations FILE", ABBREVIATED),
        ("bash scripts/mega_table7_wmt16.sh --smoke", RunBy("recipes/test_runner.py::test_translation")),
        ("bash scripts/mega_table7_wmt16.sh --direction", TRAINS),
        ("bash scripts/mega_table7_wmt16.sh --seeds", TRAINS),
        ("python -m fairseq_mega.cli.average_checkpoints", Run(prints="averaged.pt")),
        ("fairseq-mega-report translations", Run(prints="3003")),
        ("fairseq-preprocess", Run()),
        ("fairseq-mega-train data-bin", Run(f"--max-update 2 --warmup-updates 1 {ENCODER}", prints="done training")),
        (
            "fairseq-mega-train data-bin",
            Run(
                "--max-update 2 --warmup-updates 1 --encoder-embed-dim 8 --decoder-embed-dim 8", prints="done training"
            ),
        ),
        ("for model in mega", Read("the loop around the next command")),
        ("fairseq-mega-generate data-bin", Run("--beam 2 --max-len-b 5", prints="D-3")),
        ("done; done", Read("the end of the loop")),
    ],
}
