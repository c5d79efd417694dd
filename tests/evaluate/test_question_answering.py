"""fairseq-mega-qa: files, prompts, and the answers of tiny models."""

import json
from pathlib import Path

import pytest

from fairseq_mega.lab.evaluate.question_answering import command as question_answering
from fairseq_mega.lab.evaluate.question_answering import scores
from fairseq_mega.lab.evaluate.question_answering.answering import AnswerFile, Lines, Question, draw_shots, prompt_of
from fairseq_mega.models.streams.generator import TextGenerator
from tests.support.helpers import random_sentences, run_fairseq


def item(number, question="w1 w2?", document="w3 w4\nw5", output="w6", **changes):
    return {"id": number, "pid": f"{number}_0", "input": f"{question}\n\n{document}", "output": output, **changes}


def write(path, items):
    path.write_text("".join(json.dumps(one) + "\n" for one in items))
    return path


def test_lines_of_one_question_are_its_references(tmp_path):
    """Lines may end as on Windows."""
    windows = item("b", input="w1 w2?\r\n\r\nw3 w4\r\nw5")
    path = write(tmp_path / "q.jsonl", [item("a", output="x"), windows, item("a", output="y")])
    path.write_text(path.read_text() + "\n")
    lines = Lines(path)
    assert lines.by_id() == {"a": (0, ["x", "y"]), "b": (1, ["w6"])}
    assert lines[1] == Question("b", "w3 w4\nw5", "w1 w2?", "w6")


def test_prompts(tmp_path):
    lines = Lines(write(tmp_path / "q.jsonl", [item(str(n), f"q{n}", f"d{n}\nd", f"a{n}") for n in range(9)]))
    asked, shot = lines[0], lines[1]
    assert prompt_of(asked, [], False) == "d0\nd\nQ: q0\nA:"
    assert prompt_of(asked, [shot], False) == "d1\nd\nQ: q1\nA: a1\n\nd0\nd\nQ: q0\nA:"
    assert prompt_of(asked, [shot], True) == "d1 d Q: q1 A: a1 d0 d Q: q0 A:"
    drawn = [draw_shots(lines, 2, seed, asked) for seed in (1, 1, 2, 3)]
    assert drawn[0] == drawn[1] and len({tuple(one) for one in drawn}) == 3
    assert all(first != second for first, second in drawn)


@pytest.mark.parametrize("references", [1, 3])
def test_the_question_is_no_example_of_itself(references: int, tmp_path: Path) -> None:
    """Draw from a file that holds the question, each of its references too, and nobody sees its answer."""
    items = [item(str(n), f"q{n}", f"d{n % 3}", f"a{n}") for n in range(6) for _ in range(references)]
    lines = Lines(write(tmp_path / "q.jsonl", items))
    for asked in map(lines.__getitem__, range(len(lines))):
        for seed in range(20):
            drawn = draw_shots(lines, 2, seed, asked)
            assert len(drawn) == 2 and asked.text not in [shot.text for shot in drawn]
    with pytest.raises(ValueError, match="--shots 2"):
        draw_shots(Lines(write(tmp_path / "few.jsonl", items[: references + 1])), 2, 1, lines[0])


def test_answers_survive_a_kill(tmp_path):
    path, settings = tmp_path / "folder" / "a.jsonl", {"seed": 1, "limit": None}
    AnswerFile(path, {"seed": 0})  # leaves nothing that a later one could contradict
    AnswerFile(path, settings).add("a", "x\u00e9")
    path.write_bytes(path.read_bytes() + b'{"id": "b", "ans')
    again = AnswerFile(path, settings)
    assert again.answers == {"a": "x\u00e9"}
    again.add("b", "y")
    assert AnswerFile(path, settings).answers == {"a": "x\u00e9", "b": "y"}
    with pytest.raises(ValueError, match="--output"):
        AnswerFile(path, {**settings, "seed": 2})


@pytest.fixture(scope="module", params=["mega_lm_tiny", "megalodon_lm_tiny"])
def trained(request, tmp_path_factory, device_flags):
    """A data folder and a checkpoint; of the second model a line is a document."""
    folder = tmp_path_factory.mktemp("answers")
    sentences = random_sentences(200, 3)  # ten in a line, which models then do not end at once
    (folder / "text.txt").write_text("".join(" ".join(sentences[n::20]) + "\n" for n in range(20)))
    data = folder / "data-bin"
    run_fairseq("preprocess", ["--only-source", "--trainpref", folder / "text.txt", "--destdir", data])
    options = ["--arch", request.param, "--decoder-chunk-size", 8, "--max-tokens", 100, "--lr", 0.01, *device_flags]
    options += ["--optimizer", "adam", "--max-update", 20, "--disable-validation", "--num-workers", 0]
    options += ["--reset-at-document-ends"] * (request.param == "megalodon_lm_tiny")
    run_fairseq("train", [data, "--task", "mega_language_modeling", *options, "--save-dir", folder])
    (folder / "arch").write_text(request.param)
    return data, folder / "checkpoint_last.pt"


def ask(trained, data_set, folder, *options):
    data, checkpoint = trained
    command = [data_set, "--questions", folder / "valid.jsonl", "--path", checkpoint, "--data", data, "--cpu"]
    return question_answering.main([str(part) for part in [*command, "--output", folder / "found.json", *options]])


@pytest.fixture
def files(tmp_path):
    documents = [" ".join(random_sentences(20 * n + 1, n)) for n in range(4)]
    questions = [item(str(n), f"w{n}?", document, "w7 w8 w9") for n, document in enumerate(documents)]
    write(tmp_path / "valid.jsonl", [*questions, item("0", "w0?", documents[0], "w1 w2")])
    write(tmp_path / "train.jsonl", [item(f"t{n}", "w5?", "w6 w7", "w1") for n in range(3)])
    return tmp_path


def test_answers_of_a_model(trained, files, capsys, monkeypatch):
    """Scores of what it says; an evaluation that was killed asks only what was not answered."""
    asked = []
    complete = TextGenerator.complete

    def counting(self, prompt, *args, **kwargs):
        asked.append(prompt)
        return complete(self, prompt, *args, **kwargs)

    monkeypatch.setattr(TextGenerator, "complete", counting)
    assert ask(trained, "narrative_qa", files, "--answer-tokens", "5") == 0
    result = json.loads((files / "found.json").read_text())
    answers = (files / "found.answers.jsonl").read_text().splitlines()
    found = [json.loads(line)["answer"] for line in answers[1:]]
    assert result["examples"] == len(found) == 4 and len(asked) == 4
    references = [["w7 w8 w9", "w1 w2"], *[["w7 w8 w9"]] * 3]
    assert result["scores"] == scores.score("f1", found, references)
    assert any(found) and all(len(answer.split()) <= 5 for answer in found)
    lines_are_documents = "megalodon" in (trained[1].parent / "arch").read_text()
    assert ("\n" in asked[0]) != lines_are_documents

    (files / "found.answers.jsonl").write_text("".join(f"{line}\n" for line in answers[:3]) + answers[3][:9])
    assert ask(trained, "narrative_qa", files, "--answer-tokens", "5") == 0
    assert asked[4:] == asked[2:4]
    again = json.loads((files / "found.json").read_text())
    assert again["scores"] == result["scores"]
    assert "4 questions" in capsys.readouterr().out
    assert ask(trained, "narrative_qa", files, "--answer-tokens", "6") == 1
    assert "other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data_set", "shots", "scores"),
    [("qasper", 2, {"f1"}), ("qmsum", 1, {"rouge1", "rouge2", "rougeL", "geometric_mean"})],
)
def test_shots_and_scores(data_set, shots, scores, trained, files, capsys):
    examples = ("--examples", str(files / "train.jsonl"), "--answer-tokens", "4", "--limit", "2")
    assert ask(trained, data_set, files, *examples) == 0
    result = json.loads((files / "found.json").read_text())
    assert set(result["scores"]) == scores
    assert result["settings"]["shots"] == shots and result["examples"] == 2


@pytest.mark.parametrize("name", ["valid.jsonl", "train.jsonl"])
def test_an_input_is_not_overwritten(name, files, capsys):
    (files / "some.pt").write_bytes(b"")
    before = (files / name).read_bytes()
    given = ["--examples", files / "train.jsonl", "--output", files / "." / name]
    assert ask((files, files / "some.pt"), "narrative_qa", files, *given) == 1
    assert "--output" in capsys.readouterr().err and (files / name).read_bytes() == before
