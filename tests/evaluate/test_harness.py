"""Language models in lm-evaluation-harness."""

import itertools
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Tuple

import pytest

pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: pip install 'fairseq_mega[lm-eval]'")

import fairseq_cli.eval_lm
from lm_eval import simple_evaluate
from lm_eval.api.task import ConfigurableTask
from lm_eval.tasks import TaskManager

from fairseq_mega.lab.evaluate.harness import HarnessModel, common_beginning
from fairseq_mega.lab.prepare import binarised, command
from tests.support import helpers, in_process
from tests.support.helpers import REPOSITORY

LINES = ("a ship came home", "the wind was „old“ and cold", "who was there?", "")
TEXT = "\n".join(LINES * 9) + "\n"
MODEL: List[object] = ["--task", "mega_language_modeling", "--arch", "mega_lm_tiny", "--decoder-layers", 2]
MODEL += ["--decoder-embed-dim", 16, "--decoder-hidden-dim", 32, "--decoder-chunk-size", 16]
TRAINING: List[object] = ["--optimizer", "adam", "--lr", 0.01, "--max-tokens", 400, "--num-workers", 0]
TRAINING += ["--max-update", 20, "--no-epoch-checkpoints", "--disable-validation"]
UNITS = ("words", "subwords", "bytes")


class Trained(NamedTuple):
    """A checkpoint of models of a unit, and the model in the harness."""

    data: Path
    checkpoint: Path
    model: HarnessModel

    def rolling(self, text: str) -> float:
        (found,) = self.model.loglikelihood_rolling([SimpleNamespace(args=(text,))], disable_tqdm=True)
        return found

    def pairs(self, *pairs: Tuple[str, str]) -> List[Tuple[float, bool]]:
        return self.model.loglikelihood([SimpleNamespace(args=pair) for pair in pairs], disable_tqdm=True)

    def is_likeliest(self, context: str, text: str) -> bool:
        """Return whether the tokens of a continuation are those that the model itself continues with."""
        known, whole = (self.model.hub.tokens_of(given) for given in (context, context + text))
        begin = common_beginning(known, whole)
        tokens = self.model.hub.stream(whole[:begin], temperature=0.0)
        return list(itertools.islice(tokens, len(whole) - begin)) == whole[begin:]


@pytest.fixture(scope="module", params=UNITS)
def trained(
    request: pytest.FixtureRequest, device_flags: List[str], tmp_path_factory: pytest.TempPathFactory
) -> Trained:
    folder = tmp_path_factory.mktemp(request.param)
    (folder / "train.txt").write_text(TEXT * 9, encoding="utf-8")
    (folder / "test.txt").write_text(TEXT, encoding="utf-8")
    options = ["--unit", request.param, "--train", folder / "train.txt"]
    options += ["--valid", folder / "test.txt", "--test", folder / "test.txt"]
    options += ["--vocab-size", 50] if request.param == "subwords" else []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binarised, "run_command", in_process.run_command)
        done = in_process.call(command.main, "text-lm", *options, "--out", folder / "text")
    assert done.returncode == 0, done.stderr
    data, checkpoint = folder / "text" / "data-bin", folder / "checkpoint_last.pt"
    helpers.run_fairseq("train", [data, *MODEL, *TRAINING, "--save-dir", folder, *device_flags])
    return Trained(data, checkpoint, HarnessModel(str(checkpoint), str(data), device="cpu"))


def test_a_whole_text_is_scored_as_by_eval_lm(
    trained: Trained, device_flags: List[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: List[Any] = []
    score = fairseq_cli.eval_lm.eval_lm

    def kept(*arguments: Any, **options: Any) -> Any:
        found.append(score(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(fairseq_cli.eval_lm, "eval_lm", kept)
    given = [trained.data, "--task", "mega_language_modeling", "--path", trained.checkpoint, "--gen-subset", "test"]
    output = helpers.run_fairseq("eval-lm", [*given, "--valid-block", "splits:1", "--no-progress-bar", *device_flags])
    tokens = len(trained.model.hub.tokens_of(TEXT)) - 1
    assert f"scored {tokens:,} of {tokens:,} tokens" in output
    assert abs(-trained.rolling(TEXT) / tokens / math.log(2) - found[0]["loss"]) < 1e-5


def test_continuations(trained: Trained) -> None:
    """Many of one context, one of them the text of the greedy answer, and of nothing."""
    context = "who was there?\n\na ship came"
    greedy = trained.model.hub.complete(context, 5, temperature=0.0)
    continuations = [" home", greedy, " cold was there was cold", ""]
    pairs = trained.pairs(*((context, text) for text in continuations), ("", context))
    for text, (found, likeliest) in zip(continuations, pairs):
        assert abs(found - (trained.rolling(context + text) - trained.rolling(context))) < 1e-5 * (5 + len(text))
        assert likeliest == trained.is_likeliest(context, text)
    assert abs(pairs[-1][0] - trained.rolling(context)) < 1e-4


def test_a_token_across_the_border_belongs_to_the_continuation(trained: Trained) -> None:
    (found, _) = trained.pairs(("a ship ca", "me home"))[0]
    known, whole = (trained.model.hub.tokens_of(text) for text in ("a ship ca", "a ship came home"))
    shared = sum(1 for one, other in zip(known, whole) if one == other)
    scored = trained.model.score(whole).log_probs[shared - 1 :]
    assert abs(found - float(scored.sum())) < 1e-4 and 0 < len(scored) < len(whole)


def test_answers(trained: Trained) -> None:
    context, hub = "the wind was", trained.model.hub
    whole = hub.complete(context, 30, temperature=0.0)
    stop = whole[9:12]
    requests = [
        (context, {"until": [], "max_gen_toks": 30}),
        (context, {"until": ["nowhere", stop], "max_gen_toks": 30}),
    ]
    found = trained.model.generate_until([SimpleNamespace(args=pair) for pair in requests], disable_tqdm=True)
    assert found == [whole, whole[: whole.index(stop)]]
    with pytest.raises(ValueError, match="num_beams 4"):
        trained.model.answer(context, {"num_beams": 4})


def test_an_answer_ends_with_its_document() -> None:
    """A model of lines goes on: ``</s>`` is the end of a line there."""
    eos = 2

    def text_of(tokens: Iterable[int], context: str) -> Iterator[str]:
        return (f" {token}" for token in tokens)

    for parts_lines, want in ((False, " 5 6"), (True, " 5 6 2 7")):
        dictionary = SimpleNamespace(eos=lambda: eos)
        hub = SimpleNamespace(
            parts_lines=parts_lines,
            task=SimpleNamespace(source_dictionary=dictionary),
            tokens_of=lambda text: [9],
            stream=lambda tokens, **options: iter([5, 6, eos, 7]),
            text_of=text_of,
        )
        model: Any = SimpleNamespace(hub=hub)
        assert HarnessModel.answer(model, "what?", {"until": [], "max_gen_toks": 9}) == want


def test_tasks_of_local_files(trained: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    items = [{"text": line, "choices": [line[-4:], " cold"]} for line in LINES[:3]]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items), encoding="utf-8")
    tasks = {
        "texts": 'output_type: loglikelihood_rolling\ndoc_to_text: ""\ndoc_to_target: "{{text}}"\n',
        "choices": 'output_type: multiple_choice\ndoc_to_text: "{{text[:-4]}}"\ndoc_to_target: 0\n'
        'doc_to_choice: "{{choices}}"\ntarget_delimiter: ""\n',
    }
    metrics = {"texts": "bits_per_byte", "choices": "acc"}
    for name, lines in tasks.items():
        files = f"dataset_path: json\ndataset_kwargs:\n  data_files:\n    test: {tmp_path}/items.jsonl\n"
        measured = f"test_split: test\nmetric_list:\n  - metric: {metrics[name]}\n"
        (tmp_path / f"{name}.yaml").write_text(f"task: {name}\n{files}{measured}{lines}")
    manager = TaskManager(include_path=str(tmp_path), include_defaults=False)
    given = f"path={trained.checkpoint},data={trained.data}"
    found = simple_evaluate("fairseq_mega", given, list(tasks), device="cpu", task_manager=manager, bootstrap_iters=0)
    assert found is not None
    results = found["results"]
    bits = -sum(trained.rolling(line) for line in LINES[:3]) / math.log(2)
    length = sum(len(line.encode()) for line in LINES[:3])
    assert abs(results["texts"]["bits_per_byte,none"] - bits / length) < 1e-5
    right = [trained.pairs((line[:-4], line[-4:]))[0] >= trained.pairs((line[:-4], " cold"))[0] for line in LINES[:3]]
    assert results["choices"]["acc,none"] == pytest.approx(sum(right) / 3)


@pytest.mark.slow
def test_the_script_of_table_1(tmp_path: Path) -> None:
    """A toy answers an invented task."""
    script, out = REPOSITORY / "scripts" / "megalodon_table1.sh", tmp_path / "out"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FAIRSEQ_MEGA_VENV": sys.prefix, "HF_HUB_OFFLINE": "1"}
    environment["HF_DATASETS_CACHE"] = str(tmp_path / "cache")
    command = ["bash", str(script), "--smoke", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = out.glob("**/results_*.json")
    results = json.loads(found.read_text())
    assert results["n-samples"]["invented"]["effective"] == 3 and 0 <= results["results"]["invented"]["acc,none"] <= 1


def test_the_tasks_of_table_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """MEGALODON, Table 1: ten benchmarks, MMLU in its 57 subjects; their data are not fetched."""
    asked: Dict[str, int] = {}
    metrics: Dict[str, str] = {}

    class Asked(ConfigurableTask):
        def __init__(self, config: Dict[str, Any]) -> None:
            asked[config["task"]] = config["num_fewshot"]
            (metrics[config["task"]],) = (entry["metric"] for entry in config["metric_list"])
            self._config = SimpleNamespace(task=config["task"])

        task_name = property(lambda self: self._config.task)

    monkeypatch.setattr("lm_eval.tasks._factory.ConfigurableTask", Asked)
    TaskManager(include_path=str(REPOSITORY / "examples" / "megalodon")).load(["megalodon_table1"])
    subjects = [name for name in asked if name.startswith("mmlu_")]
    assert len(subjects) == 57 and {asked.pop(name) for name in subjects} == {5}
    assert {metrics.pop(name) for name in subjects} == {"acc"}
    assert [name for name, metric in metrics.items() if metric == "exact_match"] == ["nq_open", "triviaqa"]
    zero = ("boolq", "hellaswag", "piqa", "social_iqa", "winogrande", "arc_easy", "arc_challenge")
    assert asked == {**dict.fromkeys(zero, 0), "nq_open": 5, "triviaqa": 5}
