"""Options of generation that need another model, an alignment, or the words of the source."""

import copy
import re
import shutil
from pathlib import Path
from typing import Any, List

import pytest
from fairseq.scoring import build_scorer

from fairseq_mega.cli import console
from fairseq_mega.models.mega import MegaModel
from tests.support import helpers, tiny_trainings

QUICK = ["--max-len-b", 3, "--beam", 2]
UNKNOWN = [*QUICK, "--unkpen", -30]  # nothing but unknown words is written


@pytest.fixture(scope="module")
def raw(tiny_corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Test data as text, of which each source holds one unknown word."""
    folder = tmp_path_factory.mktemp("raw")
    lines = ["w1 qqq w2", "zzz", "w3 w4 w5 w6 w7 w8 w9 yyy"]
    for language in ("en", "de"):
        (folder / f"test.{language}").write_text("".join(f"{line}\n" for line in lines))
    options = [f"--{side}dict={tiny_corpus}/dict.{lang}.txt" for side, lang in (("src", "en"), ("tgt", "de"))]
    options += ["--source-lang", "en", "--target-lang", "de", "--testpref", str(folder / "test")]
    helpers.run_fairseq("preprocess", [*options, "--destdir", folder / "data", "--dataset-impl", "raw"])
    return folder


@pytest.fixture(scope="module")
def with_language_model(tiny_corpus: Path, device_flags: List[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder with a language model, lm.pt, of its target's words."""
    folder = tmp_path_factory.mktemp("lm")
    shutil.copytree(tiny_corpus, folder / "data")
    shutil.copyfile(tiny_corpus / "dict.de.txt", folder / "data/dict.txt")
    texts = [f"--{split}pref={tiny_corpus.parent}/{split}.de" for split in ("train", "valid")]
    own = ["--only-source", "--srcdict", folder / "data/dict.txt", "--destdir", folder / "text", *texts]
    helpers.run_fairseq("preprocess", own)
    options = [*tiny_trainings.OPTIONS["language model"], *tiny_trainings.COMMON, *device_flags, "--max-update", 2]
    helpers.run_fairseq("train", [folder / "text", *options, "--save-dir", folder, "--num-workers", 0])
    shutil.copyfile(folder / "checkpoint_last.pt", folder / "data/lm.pt")
    return folder / "data"


def words_of(lines: List[str]) -> "set[str]":
    return {word for line in lines for word in line.split()}


@pytest.mark.parametrize("command", ["generate", "interactive"])
@pytest.mark.parametrize("dictionary", [False, True])
def test_unknown_words_are_replaced(
    command: str, dictionary: bool, raw: Path, tiny_corpus: Path, tiny_model: Any, device_flags: List[str]
) -> None:
    """An unknown word becomes the aligned word of the source, or its translation in a file."""
    file = raw / "words.txt"
    file.write_text("".join(f"{word} {word.upper()}\n" for word in ("qqq", "zzz", "yyy", "w1")) + "\n")
    options = [*UNKNOWN, "--path", tiny_model.checkpoint, *device_flags, "--replace-unk"]
    options += [file] if dictionary else []
    if command == "generate":
        output = helpers.run_fairseq(command, [raw / "data", *options, "--dataset-impl", "raw"])
    else:
        lines = (raw / "test.en").read_text()
        output = helpers.run_fairseq(command, [tiny_corpus, *options, "--buffer-size", 2], stdin=lines)
    sources, hypotheses = (helpers.hypotheses(output, kind) for kind in "SH")
    assert sources[0] == "w1 qqq w2" and sources[2].endswith("yyy")
    for number in range(3):
        allowed = words_of([sources[number]])
        if dictionary:
            allowed = {word.upper() if word in ("qqq", "zzz", "yyy", "w1") else word for word in allowed}
        assert words_of([hypotheses[number]]) and words_of([hypotheses[number]]) <= allowed, hypotheses[number]


def test_alignments_do_not_depend_on_the_batch(tiny_model: Any, raw: Path, device_flags: List[str]) -> None:
    """Hard ones are pairs of places in the two sentences, soft ones a probability of each source token."""
    common = [raw / "data", *QUICK, "--dataset-impl", "raw", "--path", tiny_model.checkpoint, *device_flags]
    for kind in ("hard", "soft"):
        found = [
            helpers.hypotheses(helpers.run_fairseq("generate", [*common, "--print-alignment", kind, *batch]), "A")
            for batch in ([], ["--batch-size", 1])
        ]
        if kind == "hard":
            assert found[0] == found[1]
            places = [int(pair.split("-")[0]) for pair in found[0][2].split()]
            assert len(places) == 3 and max(places) < 8
        else:
            rows = [[float(part) for part in row.split(",")] for row in found[1][0].split()]
            assert [len(row) for row in rows] == [4] * 4 and all(abs(sum(row) - 1) < 1e-4 for row in rows)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_diverse_groups_do_not_depend_on_the_batch(
    groups: int, tiny_corpus: Path, tiny_model: Any, device_flags: List[str]
) -> None:
    """Sentences have other numbers in the data than rows in their batch."""
    options = [tiny_corpus, "--path", tiny_model.checkpoint, *device_flags, "--task", "translation", "--beam", 4]
    options += ["--max-len-b", 5, "--gen-subset", "valid", "--diverse-beam-groups", groups]
    found = [
        helpers.hypotheses(helpers.run_fairseq("generate", [*options, "--batch-size", size])) for size in (1, 3, 20)
    ]
    assert len(found[0]) == 20 and found[0] == found[1] == found[2]


@pytest.mark.parametrize("size", [1, 20])
def test_outputs_as_long_as_their_sources(size: int, tiny_model: Any, device_flags: List[str]) -> None:
    """Every hypothesis of fairseq-generate, and those of fairseq-interactive and the hub, also of an empty line."""
    options = ["--path", tiny_model.checkpoint, "--match-source-len", "--beam", 4, *device_flags]
    of_data = [tiny_model.data, *options, "--gen-subset", "valid", "--nbest", 4, "--batch-size", size]
    output = helpers.run_fairseq("generate", of_data)
    lengths = {number: len(text.split()) for number, text in helpers.hypotheses(output, "S").items()}
    found = re.findall(r"^H-(\d+)\t(\S+)\t(.*)", output, re.MULTILINE)
    assert len(found) == 4 * len(lengths) > 4 and len(set(lengths.values())) > 1
    assert all(len(text.split()) == lengths[int(number)] and score != "-inf" for number, score, text in found)
    lines = ["w1 w2 w3 w4 w5", "", "w2"][: max(2, size)]
    text = "".join(f"{line}\n" for line in lines)
    output = helpers.run_fairseq("interactive", [tiny_model.data, *options, "--buffer-size", size], text)
    written = [text.split() for text in helpers.hypotheses(output).values()]
    assert list(map(len, written)) == [len(line.split()) for line in lines]
    hub = MegaModel.from_pretrained(str(tiny_model.checkpoint.parent), tiny_model.checkpoint.name, str(tiny_model.data))
    assert len(hub.translate("w2", beam=100, match_source_len=True).split()) == 1  # more than there are hypotheses
    assert len(hub.translate(lines[0], beam=4, match_source_len=True).split()) == 5


def test_draws_from_all_symbols_where_there_are_fewer(tiny_model: Any, device_flags: List[str]) -> None:
    options = [tiny_model.data, "--path", tiny_model.checkpoint, *device_flags, "--gen-subset", "valid", "--beam", 1]
    options += ["--max-len-b", 5, "--sampling", "--seed", 3, "--sampling-topk"]

    def drawn(most: int) -> Any:
        return helpers.hypotheses(helpers.run_fairseq("generate", [*options, most]))

    symbols = len((tiny_model.data / "dict.en.txt").read_text().splitlines()) + 4  # with those of fairseq
    assert drawn(symbols + 1000) == drawn(symbols) != drawn(2)


def test_a_language_model_scores_along(with_language_model: Path, tiny_model: Any, device_flags: List[str]) -> None:
    """fairseq-interactive with --lm-path writes what fairseq-generate does, and with weight 0 what it does without."""
    common = [with_language_model, "--path", tiny_model.checkpoint, *QUICK, *device_flags]
    fused = ["--lm-path", with_language_model / "lm.pt", "--lm-weight", 2]
    output = helpers.run_fairseq("generate", [*common, *fused])
    number, source = next(iter(helpers.hypotheses(output, "S").items()))
    score = re.compile(r"^H-\d+\t(\S+)\t", re.MULTILINE)
    scores = [
        float(score.findall(helpers.run_fairseq("interactive", [*common, *options], stdin=f"{source}\n"))[0])
        for options in ([], [*fused, "--lm-weight", 0], fused)
    ]
    (of_generate,) = re.findall(rf"^H-{number}\t(\S+)\t", output, re.MULTILINE)
    assert scores[0] == scores[1] != scores[2] == pytest.approx(float(of_generate), rel=1e-5)


TRANSLATORS = [
    ("generate", ["--replace-unk"], "binarised data do not contain the unknown words"),
    ("generate", ["--replace-unk", "/nowhere"], "--replace-unk /nowhere does not exist"),
    ("interactive", ["--replace-unk", "/nowhere"], "--replace-unk /nowhere does not exist"),
    ("interactive", ["--replace-unk", "{bad}"], "line 2 is 'alone'; give a word of the source"),
    ("interactive", ["--replace-unk", "--bpe", "characters"], "--bpe characters joins pieces to words"),
    ("generate", ["--replace-unk", "--post-process", "subword_nmt"], "--post-process subword_nmt joins pieces"),
    ("interactive", ["--print-alignment", "soft"], "--print-alignment soft: .* give --print-alignment hard"),
    ("generate", ["--constraints"], "--constraints: "),
    ("generate", ["--left-pad-target"], "--left-pad-target: .* leave it out"),
    (
        "validate",
        ["--max-tokens", 200, "--model-overrides", "{{'left_pad_target': True}}"],
        "--left-pad-target: .* leave it out",
    ),
    ("generate", ["--lm-path", "/nowhere"], "--lm-path /nowhere does not exist"),
    ("interactive", ["--lm-path", "/nowhere"], "--lm-path /nowhere does not exist"),
    ("generate", ["--sampling", "--sampling-topk", 1, "--sampling-topp", 0.99], "ignore the first; give one"),
    (
        "interactive",
        ["--lm-path", "{translator}"],
        "dict.txt, the dictionary of the language model, does not exist: copy",
    ),
    ("interactive", ["--skip-invalid-size-inputs-valid-test"], "every line of input must have a line of output"),
    (
        "interactive",
        ["--max-source-positions", 2],
        r"error: line 1 of the input has 4 tokens with </s>, 2 at most \(--max-source-positions\): shorten or split",
    ),
]


@pytest.mark.parametrize(("command", "options", "message"), TRANSLATORS)
def test_what_cannot_be_done_is_refused(
    command: str, options: List[object], message: str, tiny_model: Any, tmp_path: Path, capsys: Any
) -> None:
    """An error is one line, with exit status 1 or 2."""
    (tmp_path / "bad.txt").write_text("w1 W1\nalone\n")
    names = {"bad": tmp_path / "bad.txt", "translator": tiny_model.checkpoint}
    given = [str(option).format(**names) for option in options]
    with helpers.captured_output("w1 w2 w3\n") as output:
        status = console.run(command, [str(tiny_model.data), "--path", str(tiny_model.checkpoint), "--cpu", *given])
    errors = [line for line in output.getvalue().splitlines() if ": error: " in line]
    assert status in (1, 2) and len(errors) == 1 and re.search(message, errors[0]), output.getvalue()


@pytest.mark.parametrize(("size", "batch"), [(1, 1), (2, 2), (5, 1), (9, 3)])
def test_a_long_line_is_named(size: int, batch: int, tiny_model: Any, tmp_path: Path) -> None:
    """The number of a line is that in the file, whatever the buffer."""
    text = tmp_path / "text.txt"
    text.write_text("w1 w2\n\nw3\n" + "w4 " * 2000 + "\nw5\n")
    given = [tiny_model.data, "--path", tiny_model.checkpoint, "--cpu", *QUICK, "--input", text]
    given += ["--buffer-size", size, "--batch-size", batch]
    with helpers.captured_output() as output:
        status = console.run("interactive", list(map(str, given)))
    (error,) = [line for line in output.getvalue().splitlines() if ": error: " in line]
    said = rf"error: line 4 of {text} has 2001 tokens with </s>, \d+ at most( \(--max-source-positions\))?: shorten or"
    assert status == console.VALUE_ERROR and re.search(said, error), output.getvalue()


@pytest.mark.parametrize(
    ("lm", "message"),
    [("translator", "holds a MegaModel: give a language model"), ("other words", "dict.txt")],
)
def test_no_other_language_model(
    lm: str, message: str, with_language_model: Path, tiny_model: Any, tmp_path: Path
) -> None:
    """A translator, and one whose dictionary is another."""
    data, path = with_language_model, tiny_model.checkpoint
    if lm == "other words":
        path = with_language_model / "lm.pt"
        data = tmp_path / "data"
        shutil.copytree(with_language_model, data)
        lines = (data / "dict.txt").read_text().splitlines(keepends=True)
        (data / "dict.txt").write_text("".join(reversed(lines)))
    with helpers.captured_output("w1 w2 w3\n") as output:
        arguments = [str(data), "--path", str(tiny_model.checkpoint), "--cpu", "--lm-path", str(path)]
        status = console.run("interactive", arguments)
    assert status in (1, 2) and message in output.getvalue().splitlines()[-1], output.getvalue()


@pytest.mark.parametrize("option", ["--replace-unk", "--print-alignment", "--match-source-len"])
def test_language_models_have_no_source(option: str, with_language_model: Path) -> None:
    with helpers.captured_output("w1 w2 w3\n") as output:
        arguments = [str(with_language_model.parent / "text"), "--path", str(with_language_model / "lm.pt"), "--cpu"]
        status = console.run("interactive", [*arguments, option])
    assert status == 2 and f"{option} requires a translator" in output.getvalue().splitlines()[-1], output.getvalue()


def test_a_translator_is_copied_and_scores_no_single_texts(tiny_model: Any, tiny_corpus: Path) -> None:
    hub = MegaModel.from_pretrained(str(tiny_model.checkpoint.parent), tiny_model.checkpoint.name, str(tiny_corpus))
    assert copy.deepcopy(hub).translate("w1 w2") == hub.translate("w1 w2")
    with pytest.raises(ValueError, match="score: a translator scores pairs of texts"):
        hub.score(["w1 w2"])


@pytest.mark.parametrize("place", [1, 3])
def test_a_sentence_that_is_too_long_for_a_translator_is_named(place: int, tiny_model: Any, tiny_corpus: Path) -> None:
    hub = MegaModel.from_pretrained(str(tiny_model.checkpoint.parent), tiny_model.checkpoint.name, str(tiny_corpus))
    sentences = ["w1 w2"] * 3
    sentences[place - 1] = "w1 " * 2000
    said = (
        rf"sentence {place} of the list has 2001 tokens with </s>, \d+ at most \(--max-source-positions\): shorten or "
        "split the sentence"
    )
    with pytest.raises(ValueError, match=said):
        hub.translate(sentences)
    if place == 1:
        with pytest.raises(ValueError, match=said):
            hub.translate(sentences[0])
    assert len(hub.generate(list(map(hub.encode, sentences)), skip_invalid_size_inputs=True)) == 2


@pytest.mark.parametrize("scoring", [[], ["--scoring", "sacrebleu"], ["--scoring", "chrf"]])
def test_references_have_no_bleu(
    scoring: List[str], tiny_corpus: Path, tiny_model: Any, device_flags: List[str], capfd: Any
) -> None:
    options = ["--path", tiny_model.checkpoint, *device_flags, "--score-reference", "--batch-size", 200, *scoring]
    if scoring:
        assert console.run("generate", [str(tiny_corpus), *map(str, options)]) == 2
        assert (
            f"--scoring {scoring[1]} requires translations, and --score-reference makes none" in capfd.readouterr().err
        )
    else:
        output = helpers.run_fairseq("generate", [tiny_corpus, *options])
        (last,) = [line for line in output.splitlines() if line.startswith("Generate ")]
        assert "BLEU" not in output and "--score-reference" in last
        later = build_scorer("sacrebleu", None)
        later.add_string("a b c d", "a b c d")
        assert "BLEU" in later.result_string()
