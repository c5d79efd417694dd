"""fairseq-mega-interactive: a text is read once, and prompts of later calls go on from it."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import List, NamedTuple

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_mega.cli import console, interactive
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.models.megalodon_lm import MegalodonLanguageModel
from tests.support.helpers import captured_output, hypotheses, run_fairseq
from tests.support.terminal import dialogue
from tests.support.tiny_trainings import Trainings

TEXT = "w1 w2\nw3\n" + "w4 w5 w6 w7 w8\n" * 9 + "w9 w10"
PROMPTS = ("w1 w2 w3", "", "w4")
MODELS = {"language model": MegaLanguageModel, "megalodon": MegalodonLanguageModel}


class Reading(NamedTuple):
    """A checkpoint and a context of its model."""

    kind: str
    checkpoint: Path
    data: Path
    context: Path
    flags: List[str]

    def arguments(self, *options: object) -> List[object]:
        task = ["--task", "mega_language_modeling"]
        return [self.data, *task, "--path", self.checkpoint, *self.flags, "--max-len-b", 9, *options]

    def answers(self, *options: object, kind: str = "P") -> List[str]:
        """Lines of a kind for PROMPTS after the context."""
        lines = "".join(f"{prompt}\n" for prompt in PROMPTS)
        given = self.arguments("--context", self.context, *options)
        return list(hypotheses(run_fairseq("interactive", given, stdin=lines), kind).values())


@pytest.fixture(scope="module", params=MODELS)
def reading(
    request: pytest.FixtureRequest,
    trainings: Trainings,
    device_flags: List[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Reading:
    folder = tmp_path_factory.mktemp("reading")
    options = ["--max-update", 9, "--disable-validation", "--save-dir", folder, *device_flags]
    given = trainings.arguments(request.param, *options)
    run_fairseq("train", given)
    (folder / "text.txt").write_text(TEXT)
    made = Reading(
        request.param, folder / "checkpoint_last.pt", Path(str(given[0])), folder / "a.safetensors", device_flags
    )
    output = run_fairseq("interactive", made.arguments("--read", folder / "text.txt", "--save-context", made.context))
    assert f"62 tokens in {made.context} " in output
    return made


def test_answers_are_those_after_the_whole_text(reading: Reading) -> None:
    """Beams side by side; scores of each token, those of the prompt included, as one pass over text and answer."""
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(reading.checkpoint)])
    model.eval()
    before = [task.dictionary.encode_line(line).tolist() for line in TEXT.split("\n")]
    known = [task.dictionary.eos(), *(token for line in before for token in line)]
    for options in ((), ("--buffer-size", 3, "--batch-size", 3), ("--beam", 1)):
        scores, texts = (reading.answers(*options, kind=kind) for kind in "PH")
        for found, text in zip(scores, texts):
            answer = task.dictionary.encode_line(text).tolist()
            read = torch.tensor([[*known, *answer]])
            with torch.no_grad():
                whole = model.get_normalized_probs(model(read), log_probs=True)[0] / torch.tensor(2.0).log()
            want = [float(whole[len(known) - 1 + i, token]) for i, token in enumerate(answer)]
            torch.testing.assert_close([float(x) for x in found.split()], want, atol=1.1e-4, rtol=0)


def test_read_on(reading: Reading, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text in two calls and in parts that end anywhere is the text in one."""
    monkeypatch.setattr(interactive, "BLOCK", 7)
    texts = {"first": TEXT[:24], "second": TEXT[24:]}
    assert texts["first"].endswith("\n")
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        options = ["--read", tmp_path / name, "--save-context", tmp_path / f"{name}.safetensors"]
        if name == "second":
            options += ["--context", tmp_path / "first.safetensors"]
        run_fairseq("interactive", reading.arguments(*options))
    assert reading._replace(context=tmp_path / "second.safetensors").answers() == reading.answers()


@pytest.mark.parametrize(("parts_lines", "read"), [(True, "a\r\nb\r\n"), (False, "a\nb\n")])
def test_line_ends_are_those_of_the_training_text(
    parts_lines: bool, read: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """own-documents makes line feeds of CR LF; models of lines have a unit of their own for each character."""
    given: List[str] = []

    def keep(part: str, context: object) -> SimpleNamespace:
        given.append(part)
        return SimpleNamespace(states=[None])

    stub = SimpleNamespace(parts_lines=parts_lines, read=keep, save_context=lambda context, output: output.touch())
    monkeypatch.setattr(interactive, "load", lambda cfg: stub)
    monkeypatch.setattr(interactive, "BLOCK", 2)
    (tmp_path / "text.txt").write_bytes(b"a\r\nb\r\n")
    interactive.read(SimpleNamespace(task=SimpleNamespace()), tmp_path / "text.txt", tmp_path / "context")
    assert "".join(given) == read


def test_lines_of_a_split_go_on_from_it(reading: Reading) -> None:
    given = reading.arguments("--valid-block", "lines", "--gen-subset", "test", "--max-len-b", 2, "--batch-size", 8)
    alone, after = (
        hypotheses(run_fairseq("generate", [*given, *more]), "P") for more in ([], ["--context", reading.context])
    )
    assert list(alone) == list(after) and all(alone[line] != after[line] for line in alone)


@pytest.mark.parametrize("kind", ["bf16", "int8"])
def test_packed_weights_have_contexts_of_their_own(reading: Reading, kind: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    own, packed = tmp_path / "own.safetensors", ["--decode-weights", kind]
    with pytest.raises(ValueError, match="with other weights"):
        reading.answers(*packed)
    run_fairseq("interactive", reading.arguments(*packed, "--read", tmp_path / "text.txt", "--save-context", own))
    exact, found = (
        [float(number) for line in lines for number in line.split()]
        for lines in (reading.answers("--beam", 1), reading._replace(context=own).answers(*packed, "--beam", 1))
    )
    torch.testing.assert_close(found[:4], exact[:4], atol=0.1, rtol=0)


def errors(command: str, given: List[object]) -> str:
    with captured_output() as buffer:
        status = console.run(command, [str(argument) for argument in given])
    *_, message = buffer.getvalue().splitlines()
    assert status in (1, 2) and message.startswith(f"fairseq-mega-{command}: error: "), message
    return message


def test_errors(reading: Reading, tmp_path: Path) -> None:
    text, new = tmp_path / "text.txt", tmp_path / "new.safetensors"
    text.write_text(TEXT)
    for options, words in (
        (["--read", text], "--save-context"),
        (["--read", text, "--save-context", tmp_path / "new.pt"], "new.pt"),
        (["--read", text, "--save-context", reading.context], "--save-context"),
        (["--context", reading.context, "--test-chunk-size", 4], "--decoder-chunk-size 4"),
    ):
        assert words in errors("interactive", reading.arguments(*options)), options
        assert not new.exists()
    for command, option, value in (("train", "--arch", "mega_lm"), ("eval-lm", "--path", reading.checkpoint)):
        given = [reading.data, "--task", "mega_language_modeling", option, value, "--context", reading.context]
        assert f"error: --context {reading.context}: " in errors(command, given)


@pytest.mark.parametrize(
    ("kind", "task"), [("translation", "translation"), ("language model", "mega_language_modeling")]
)
def test_on_a_terminal_only_the_texts_are_printed(
    kind: str, task: str, trainings: Trainings, device_flags: List[str], tmp_path: Path
) -> None:
    """The text of the best hypothesis answers each typed line; an option selects fairseq's lines."""
    given = trainings.arguments(kind, "--max-update", 5, "--disable-validation", "--save-dir", tmp_path, *device_flags)
    run_fairseq("train", given)
    options = [given[0], "--task", task, "--path", tmp_path / "checkpoint_last.pt", "--max-len-b", 9, *device_flags]
    want = hypotheses(run_fairseq("interactive", options, stdin="w1 w2 w3\nw4\n"), "D")
    command = [sys.executable, "-c", "from fairseq_mega.cli import console; exit(console.interactive())", *options]
    shown = dialogue(command, "w1 w2 w3\n", "w4\n", "\x04").splitlines()
    assert shown[0].startswith("Type a line")
    assert shown[-5:] == ["> w1 w2 w3", want[0], "> w4", want[1], "> "]
    lines = dialogue([*command, "--fairseq-lines"], "w1 w2 w3\nw4\n\x04", prompt="press return:\n")
    assert hypotheses(lines, "D") == want
