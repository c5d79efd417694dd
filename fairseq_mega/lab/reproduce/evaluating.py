"""The evaluation of a trained run: the commands of each kind, and the result files that they write.

Scoring runs in a process of its own, as training does: its memory and its GPU are free when it ends, it can be killed,
and simultaneous runs have a log each.
"""

import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

from fairseq_mega.cli.progress import Progress
from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.inspect.parts import parameters_by_part, read
from fairseq_mega.lab.recipes.command_line import flag_of
from fairseq_mega.lab.runs.commands import PYTHON, Execute
from fairseq_mega.lab.runs.files import count_lines
from fairseq_mega.lab.runs.results import make_result, read_result, write_result
from fairseq_mega.lab.runs.stages import make_of, print_line
from fairseq_mega.lab.runs.training_log import averaged, read_log, read_losses, spikes_of
from fairseq_mega.models.averaging import average, epoch_checkpoints
from fairseq_mega.models.checkpoint_files import save

from .jobs import Job
from .training import MODULE, variables

SEARCH = ("beam", "lenpen", "max_len_a", "max_len_b")  # settings that a recipe may have for it
BATCH = ("batch_size", "max_tokens")
POINTS = 100  # of a curve
GENERATE = [sys.executable, "-c", "import sys; from fairseq_mega.cli.console import generate; sys.exit(generate())"]


def benchmark_of(job: Job) -> str:
    """Return the name in the result files by which the report finds them."""
    title: str = job.recipe.evaluate.get("benchmark", job.recipe.report)
    return title + ("-smoke" if job.choices.smoke else "")


def evaluate(job: Job, execute: Execute, devices: List[int], command: str) -> None:
    """Score a run on the test split, or measure its speed; write its result files to :attr:`Job.results`.

    Raises:
        StageError: if a command fails.
    """
    kinds = {
        "classifier": classifier,
        "images": classifier,
        "language-model": language_model,
        "translation": translation,
        "speed": speed,
    }
    kinds[job.recipe.evaluate["kind"]](job, execute, variables(job, devices), command)


def settings_words(settings: Dict[str, Any]) -> List[str]:
    """--setting NAME=VALUE for each of the settings."""
    return [word for key, value in settings.items() for word in ("--setting", f"{key}={value}")]


def classifier(job: Job, execute: Execute, env: Dict[str, str], command: str) -> None:
    """Accuracy of the checkpoint of best validation accuracy.

    On ImageNet that of the last one, too, both on the validation images, as those of the test have no labels.
    """
    images, weights, schedule = job.recipe.evaluate["kind"] == "images", job.weights, job.config["lr_scheduler"]
    for name in ("best", "last") if images and weights is None else ("best",):
        path = job.folder / "checkpoints" / f"checkpoint_{name}.pt"
        settings: Dict[str, Any] = {**job.recipe.cell, "published_updates": job.recipe.updates}
        if images:
            settings["checkpoint"] = name if weights is None else "given"
            label, words = f"{job.name}.{settings['checkpoint']}", ["--split", "valid", "--score", "top1_accuracy"]
        else:
            total = schedule.get("total_num_update") or schedule["warmup_updates"] + schedule["lr_period_updates"]
            splits = ["test", *job.recipe.evaluate.get("splits", [])]
            label, words, settings["schedule_updates"] = job.name, ["--split", ",".join(splits)], int(total)
        settings.update(precision=job.precision, gpus=job.gpus, recipe=job.recipe.name)
        dataset, places = job.config["dataset"], job.config["distributed_training"]["distributed_world_size"]
        if weights is None:
            examples = int(dataset["batch_size"] * job.config["optimization"]["update_freq"][0] * places)
            words += ["--log", str(job.folder / "train.log"), "--train-command", str(job.folder / "train.command")]
            words += ["--seed", str(job.seed), "--batch", str(examples)]
            words += ["--early-epoch", str(job.recipe.evaluate["early_epoch"])]
        else:
            counts = parameters_by_part(read(path)["model"])
            settings["parameters"] = sum(count for _, count in counts)
            settings["updates"] = weights.updates or job.recipe.updates
        words += [str(job.data), "--task", job.config["task"]["_name"], "--path", str(path), "--label", label]
        words += ["--json", str(job.results / f"{label}.json"), "--benchmark", benchmark_of(job), "--command", command]
        words += ["--test-batch", str(dataset["batch_size"]), *["--cpu"] * (job.gpus == 0), *settings_words(settings)]
        execute([*PYTHON, MODULE, "test", *words], job.folder / "test.log", env)


def language_model(job: Job, execute: Execute, env: Dict[str, str], command: str) -> None:
    """Perplexity over the contexts and chunks of the recipe, the memory carried along."""
    evaluation = job.recipe.evaluate
    checkpoint = "best" if job.weights is not None else evaluation.get("checkpoint", "best")
    if evaluation.get("curve"):
        write_curve(job, command)
    for context in evaluation["contexts"]:
        words = [str(job.data), "--path", str(job.folder / "checkpoints" / f"checkpoint_{checkpoint}.pt")]
        words += ["--label", job.name, "--benchmark", benchmark_of(job), "--output", str(job.results)]
        words += ["--device", "cuda" if job.gpus else "cpu"]
        words += [word for key, values in context.items() for word in (flag_of(key), ",".join(map(str, values)))]
        if "chunk_nums" in evaluation:
            at_a_time = max(context["chunk_size"]) * evaluation["chunk_nums"]
            words += ["--chunk-nums", str(evaluation["chunk_nums"]), "--max-tokens", str(at_a_time)]
        execute([*PYTHON, "fairseq_mega.lab.evaluate.language_model", *words], job.folder / "test.log", env)


def write_curve(job: Job, command: str) -> None:
    """Write the losses of a language model's training to a result file of its own.

    Raises:
        ValueError: if the log does not hold all of them.
    """
    log = job.folder / "train.log"
    found = read_losses(read_log(log), str(log))
    each = max(1, len(found.updates) // POINTS)
    curve = averaged(found.updates, each)
    scores = {
        "train_bits_per_token": curve[-1].loss,
        "valid_bits_per_token": found.validations[-1].loss,
        "updates_per_second": found.updates_per_second,
    }
    tokens = found.updates[-1].tokens
    settings = {"parameters": found.parameters, "updates": len(found.updates), "tokens": tokens}
    result = make_result(
        *(benchmark_of(job), job.name, scores, tokens, command, job.seed, {**settings, "averaged_updates": each}),
        spikes=spikes_of(found.updates),
        train_command=(job.folder / "train.command").read_text(encoding="utf-8").strip(),
        curve={
            name: dict(zip(("tokens", "bits_per_token"), map(list, zip(*points))))
            for name, points in (("train", curve), ("valid", found.validations))
        },
    )
    write_result(job.results / f"{job.name}-train.json", result)


def speed(job: Job, execute: Execute, env: Dict[str, str], command: str) -> None:
    """Tokens per second of a device and peak memory over the lengths of the recipe."""
    evaluation, name, found = job.recipe.evaluate, job.recipe.name, job.folder / "speed.json"
    words = [
        *("lm-length", "--models", name, "--lengths", ",".join(map(str, evaluation["lengths"]))),
        *("--symbols", str(evaluation["symbols"]), "--repeat", str(evaluation["repeat"]), "--time-limit", "inf"),
        *("--device", "cuda" if job.gpus else "cpu", "--threads", str(job.choices.workers), "--json", str(found)),
        *("--dtype", "bfloat16" if job.precision == "bf16" else "float32", *["--smoke"] * job.choices.smoke),
    ]
    execute([*PYTHON, "fairseq_mega.lab.benchmarks", *words], job.folder / "test.log", env)
    result = read_result(found)
    scores = {key[len(name) + 1 :]: value for key, value in result["scores"].items()}
    for length in evaluation["lengths"]:
        scores[f"L={length} tokens_per_second"] = length / scores[f"L={length} seconds"]
    own = {"benchmark": benchmark_of(job), "label": job.name, "scores": scores, "command": command}
    write_result(job.results / f"{job.name}.json", {**result, **own})


def translation(job: Job, execute: Execute, env: Dict[str, str], command: str) -> None:
    """BLEU of given weights, or of the best checkpoint and of the averaged last ones where the recipe averages some."""
    evaluation, weights = job.recipe.evaluate, job.weights
    paths = {"best" if weights is None else "given": job.folder / "checkpoints" / "checkpoint_best.pt"}
    if "average" in evaluation and weights is None:
        paths.update(last_average(job))
    for name, path in paths.items():
        translate(job, name, path, execute, env)
        label = f"{job.name}.{name}"
        settings = {**job.recipe.cell, "checkpoint": name, "max_update": job.updates, "seed": job.seed}
        if weights is not None:
            settings["max_update"] = weights.updates or job.updates
        elif "average" in evaluation:
            settings["averaged_epochs"] = evaluation["average"]
        settings["precision"] = json.dumps(job.recipe.precision)
        words = [
            *(*score_words(job, name), "--examples", "3", "--json", str(job.results / f"{label}.json")),
            *("--benchmark", benchmark_of(job), "--label", label, "--seed", str(job.seed), "--command", command),
            *settings_words(settings),
        ]
        execute([*PYTHON, "fairseq_mega.lab.report", "translations", *words], job.folder / "test.log", env)


def last_average(job: Job) -> Dict[str, Path]:
    """Return the average of the last epochs by its name, made unless that is done; nothing of a training with fewer
    epochs.
    """
    path, count = job.folder / "checkpoint_average.pt", job.recipe.evaluate["average"]
    sources = epoch_checkpoints(job.folder / "checkpoints")[-count:]
    if len(sources) < count:
        print_line(f"{job.name}: checkpoints of {len(sources)} epochs: the average of the last {count} is not scored")
        return {}
    make_of(sources, path, lambda: save(average(sources), path))
    return {"average": path}


def translate(job: Job, name: str, path: Path, execute: Execute, env: Dict[str, str]) -> None:
    """Translate every sentence of the test set by a checkpoint, which has a name, unless that is done."""
    output, evaluation = generated(job, name), job.recipe.evaluate
    words = [*GENERATE, *translator_words(job, path), "--task", "translation", "--gen-subset", "test"]
    words += [word for key in BATCH if key in evaluation for word in (flag_of(key), str(evaluation[key]))]
    words += ["--required-batch-size-multiple", "1", "--num-workers", "0"]
    progress = Progress(sentences=sentences(job))
    make_of([path], output, lambda: execute(words, output.with_suffix(".log"), env, progress, output))


def generated(job: Job, name: str) -> Path:
    """The translations of a checkpoint; of other settings of the evaluation another file."""
    other = [] if job.evaluation == job.recipe.report else [job.evaluation]
    return job.folder / ".".join(["generate", name, *other, "txt"])


def translator_words(job: Job, path: Path) -> List[str]:
    """Arguments of fairseq-generate and fairseq-interactive: the data, a checkpoint, languages, subwords, search."""
    evaluation, (source, target), subwords = job.recipe.evaluate, languages(job), job.data / MODEL_FILE
    joined = (
        ["--bpe", "sentencepiece", "--sentencepiece-model", str(subwords)] if subwords.exists() else ["--remove-bpe"]
    )
    return [
        *(str(job.data), "--path", str(path), "--source-lang", source, "--target-lang", target, *joined),
        *(word for key in SEARCH if key in evaluation for word in (flag_of(key), str(evaluation[key]))),
        *["--cpu"] * (job.gpus == 0),
    ]


def score_words(job: Job, name: str) -> List[str]:
    """Arguments of the report that scores the translations of a checkpoint."""
    evaluation, (source, target) = job.recipe.evaluate, languages(job)
    words = [
        *(str(generated(job, name)), "--expect", str(sentences(job)), "--source-lang", source, "--target-lang", target),
        *("--source", str(test_text(job, source)), "--reference", str(test_text(job, target))),
    ]
    if "tokenized" in evaluation:  # whose translations are words of Moses
        reference = job.data.parent / f"{evaluation['tokenized']}.{target}"
        words += ["--detokenize", "en", "--compound-split", "--tokenized-reference", str(reference)]
    if "sacrebleu" in evaluation and not job.choices.smoke:
        words += ["--sacrebleu-test-set", evaluation["sacrebleu"]]
    return words


def languages(job: Job) -> Tuple[str, str]:
    """Source and target of a translation."""
    task = job.config["task"]
    return task["source_lang"], task["target_lang"]


def test_text(job: Job, language: str) -> Path:
    """One side of the test set as plain text."""
    return job.data.parent / f"{job.recipe.evaluate['test']}.{language}"


def sentences(job: Job) -> int:
    """Return the number of sentences of the test set."""
    return count_lines(test_text(job, languages(job)[0]))
