"""Input that is missing, broken or odd: one clear line, nothing lost, every sentence translated."""

import io
import re
import shutil
from pathlib import Path
from typing import List

import pytest

from fairseq_mega.cli import console
from fairseq_mega.models.mega import MegaModel
from tests.support import helpers


@pytest.fixture(autouse=True)
def scratch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq makes its default --save-dir even for a command that fails at once: keep it out of the checkout."""
    monkeypatch.chdir(tmp_path)


def error_of(capsys: pytest.CaptureFixture, command: str, *argv: object) -> str:
    """Run a command that must fail and return its one line of error."""
    if command == "train":
        argv = (*argv, "--max-update", "1")  # should it train after all, the test fails instead of hanging
    helpers.forget_earlier_runs()
    try:
        status = console.run(command, [str(argument) for argument in argv])
    except SystemExit as exit_request:  # a value that the parser refuses
        status = exit_request.code if isinstance(exit_request.code, int) else 1
    finally:
        helpers.forget_earlier_runs()
    captured = capsys.readouterr()
    assert status in (console.FILE_ERROR, console.VALUE_ERROR), captured.err
    assert "Traceback" not in captured.err, captured.err
    errors = [line for line in captured.err.splitlines() if f"fairseq-mega-{command}: error: " in line]
    assert len(errors) == 1, captured.err
    return errors[0]


class TestMissing:
    def test_data_folder(self, capsys, device_flags, tmp_path) -> None:
        missing = tmp_path / "no-data"
        message = error_of(capsys, "train", missing, *helpers.TINY_TRAINING, *device_flags)
        assert str(missing) in message

    def test_data_folder_without_dictionaries(self, capsys, device_flags, tmp_path) -> None:
        assert "language pair" in error_of(capsys, "train", tmp_path, *helpers.TINY_TRAINING, *device_flags)

    def test_dictionary(self, capsys, device_flags, tmp_path) -> None:
        languages = ["--source-lang", "en", "--target-lang", "de"]
        message = error_of(capsys, "train", tmp_path, *languages, *helpers.TINY_TRAINING, *device_flags)
        assert "dict.en.txt" in message

    def test_subset(self, capsys, tiny_model, device_flags) -> None:
        arguments = [tiny_model.data, "--path", tiny_model.checkpoint, "--gen-subset", "test7"]
        message = error_of(capsys, "generate", *arguments, *device_flags)
        assert "test7" in message and str(tiny_model.data) in message

    @pytest.mark.parametrize("command", ["generate", "interactive"])
    def test_checkpoint(self, command, capsys, tiny_corpus, device_flags, tmp_path) -> None:
        missing = tmp_path / "checkpoint_best.pt"
        message = error_of(capsys, command, tiny_corpus, "--path", missing, *device_flags)
        assert str(missing) in message and "--path" in message

    def test_checkpoint_to_restore(self, capsys, tiny_corpus, device_flags, tmp_path) -> None:
        restore = ["--restore-file", tmp_path / "gone.pt", "--save-dir", tmp_path / "save"]
        message = error_of(capsys, "train", tiny_corpus, *helpers.TINY_TRAINING, *device_flags, *restore)
        assert "--restore-file" in message and "gone.pt" in message

    def test_batch_size(self, capsys, tiny_corpus, device_flags) -> None:
        message = error_of(capsys, "train", tiny_corpus, *helpers.TINY_MODEL, *device_flags)
        assert "--max-tokens" in message and "--batch-size" in message


class TestBrokenCheckpoint:
    @pytest.fixture
    def truncated(self, tiny_model, tmp_path: Path) -> Path:
        contents = tiny_model.checkpoint.read_bytes()
        path = tmp_path / "checkpoint_last.pt"
        path.write_bytes(contents[: len(contents) // 2])
        return path

    def test_training_keeps_the_file(self, truncated, capsys, tiny_corpus, device_flags) -> None:
        before = truncated.read_bytes()
        arguments = [tiny_corpus, *helpers.TINY_TRAINING, *device_flags, "--save-dir", truncated.parent]
        assert "truncated" in error_of(capsys, "train", *arguments)
        assert truncated.read_bytes() == before

    def test_generation(self, truncated, capsys, tiny_corpus, device_flags) -> None:
        message = error_of(capsys, "generate", tiny_corpus, "--path", truncated, *device_flags)
        assert "truncated" in message

    def test_text_file(self, capsys, tiny_corpus, device_flags, tmp_path) -> None:
        (tmp_path / "model.pt").write_text("not a model\n")
        message = error_of(capsys, "generate", tiny_corpus, "--path", tmp_path / "model.pt", *device_flags)
        assert "truncated or not a checkpoint" in message

    def test_other_sizes(self, tiny_model, capsys, device_flags, tmp_path) -> None:
        shutil.copy(tiny_model.checkpoint, tmp_path / "checkpoint_last.pt")
        wider = [*helpers.TINY_TRAINING, "--encoder-hidden-dim", "48"]
        message = error_of(capsys, "train", tiny_model.data, *wider, *device_flags, "--save-dir", tmp_path)
        assert "checkpoint_last.pt" in message


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (["--encoder-n-dim", "-1"], "encoder-n-dim"),
        (["--attention-activation-fn", "gelu"], "attention-activation-fn"),
    ],
)
def test_value_out_of_range(flags: List[str], named: str, capsys, tiny_corpus, device_flags, tmp_path) -> None:
    arguments = [tiny_corpus, *helpers.TINY_TRAINING, *device_flags, "--save-dir", tmp_path, *flags]
    message = error_of(capsys, "train", *arguments)
    assert named in message and flags[1] in message, message


def test_shared_embeddings_need_a_joined_dictionary(capsys, device_flags, tmp_path) -> None:
    data = helpers.make_parallel_corpus(tmp_path, sentences=4, train=8, valid=4, joined=False)
    message = error_of(capsys, "train", data, *helpers.TINY_TRAINING, *device_flags, "--save-dir", tmp_path)
    assert "share-all-embeddings" in message and "joined" in message


def test_a_sentence_that_is_too_long(capsys, monkeypatch, tiny_model, device_flags) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("w1 w2\n" + "w3 " * 1500 + "\n"))
    options = ["--source-lang", "en", "--target-lang", "de", *device_flags]
    message = error_of(capsys, "interactive", tiny_model.data, "--path", tiny_model.checkpoint, *options)
    assert "1501" in message and "1024" in message, message


def test_a_byte_order_mark_changes_nothing(tiny_model, device_flags, tmp_path) -> None:
    """A mark is ignored in front of a file, from --input and from a pipe, and in front of a file joined to it."""
    arguments = [tiny_model.data, "--path", tiny_model.checkpoint, "--beam", 1, *device_flags]
    plain = helpers.run_fairseq("interactive", arguments, stdin="w1 w2\nw3\n")
    (tmp_path / "marked.txt").write_text("\ufeffw1 w2\n\ufeffw3\n", encoding="utf-8")
    from_file = helpers.run_fairseq("interactive", [*arguments, "--input", tmp_path / "marked.txt"])
    piped = helpers.run_fairseq("interactive", arguments, stdin="\ufeffw1 w2\n\ufeffw3\n")
    assert "<unk>" not in from_file + piped
    assert helpers.hypotheses(plain) == helpers.hypotheses(from_file) == helpers.hypotheses(piped)


@pytest.mark.parametrize("way", ["interactive", "hub"])
@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("w1 nothing known", "2 of the 3 tokens of the text 'w1 nothing known' are unknown"),
        ("Кошка", "1 of the 1 tokens of the text 'Кошка' are unknown"),
        *(("w1 <unk> w2", ""), ("w1 w2", "")),
    ],
)
def test_tokens_that_a_model_does_not_know_are_logged(
    line: str, told: str, way: str, tiny_model, device_flags, caplog
) -> None:
    """Not where somebody wrote the word for them."""
    caplog.set_level("WARNING")
    if way == "hub":
        where = tiny_model.checkpoint.parent, tiny_model.checkpoint.name, tiny_model.data
        MegaModel.from_pretrained(*map(str, where)).translate(line, beam=1)
        printed = caplog.messages
    else:
        arguments = [tiny_model.data, "--path", tiny_model.checkpoint, "--beam", 1, *device_flags]
        printed = helpers.run_fairseq("interactive", arguments, stdin=f"{line}\n").splitlines()
    found = [message for message in printed if "tokens of the text" in message]
    assert len(found) == bool(told) and all(told in message for message in found)


@pytest.mark.parametrize("way", ["pipe", "file"])
def test_a_carriage_return_ends_no_line(way: str, tiny_model, device_flags, tmp_path, monkeypatch, capsys) -> None:
    """An answer for each line feed: with one more, all later answers would belong to other lines."""
    (tmp_path / "input").write_bytes(b"w1\rw2\r\nw3\n")
    lines = io.TextIOWrapper((tmp_path / "input").open("rb"), encoding="utf-8")
    monkeypatch.setattr("sys.stdin", lines)
    arguments = [tiny_model.data, "--path", tiny_model.checkpoint, "--beam", 1, *device_flags]
    arguments += ["--input", tmp_path / "input"] if way == "file" else []
    assert console.run("interactive", [str(argument) for argument in arguments]) == 0
    sources = re.findall(r"^S-\d+\t(.*)$", capsys.readouterr().out, re.M)
    assert sources == ["w1 w2", "w3"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("caf\u00e9\n".encode("latin-1"), "0xe9"),
        ("w1\n".encode("utf-16"), "0xff"),
        (b"\x1f\x8b\x08\0", "0x8b"),
    ],
)
def test_stdin_that_is_no_utf8(content: bytes, message: str, tiny_model, device_flags, monkeypatch, capsys) -> None:
    """Bytes of stdin are refused also under LANG=C.UTF-8, where Python accepts all bytes."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content), "utf-8", "surrogateescape"))
    found = error_of(capsys, "interactive", tiny_model.data, "--path", tiny_model.checkpoint, *device_flags)
    assert "'utf-8' codec" in found and message in found


class TestEmptySourceLines:
    LINES = ("w1 w2", "", "w3", "", "", "w4 w5 w6", "")

    @pytest.mark.parametrize("buffer", [[], ["--buffer-size", "3", "--batch-size", "3"]])
    def test_interactive_gives_one_hypothesis_each_in_order(self, buffer, tiny_model, device_flags) -> None:
        text = "".join(f"{line}\n" for line in (*self.LINES, "  \t "))
        arguments = [tiny_model.data, "--path", tiny_model.checkpoint, "--beam", 2, *buffer, *device_flags]
        output = helpers.run_fairseq("interactive", arguments, stdin=text)
        assert list(helpers.hypotheses(output)) == list(range(len(self.LINES) + 1))

    def test_generate_gives_one_hypothesis_each(self, tiny_model, device_flags, tmp_path) -> None:
        data = helpers.make_parallel_corpus(
            tmp_path, sentences=len(self.LINES), valid=4, train=200, test_source=self.LINES
        )
        for split in ("en", "de"):
            shutil.copy(tiny_model.data / f"dict.{split}.txt", data)
        arguments = [data, "--path", tiny_model.checkpoint, "--beam", 2, *device_flags]
        output = helpers.run_fairseq("generate", arguments)
        assert sorted(helpers.hypotheses(output)) == list(range(len(self.LINES)))
