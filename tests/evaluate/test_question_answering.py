"""fairseq-mega-qa: files, prompts, the answers of tiny models, and scores against values by hand and published ones."""

import json

import pytest

from fairseq_mega.lab.evaluate import question_answering
from fairseq_mega.lab.evaluate.question_answering import Question, draw_shots, prompt_of, questions_of
from fairseq_mega.models.streams.generator import TextGenerator
from tests.support.helpers import random_sentences, run_fairseq


def item(number, question="w1 w2?", document="w3 w4\nw5", output="w6", **changes):
    return {"id": number, "pid": f"{number}_0", "input": f"{question}\n\n{document}", "output": output, **changes}


def write(path, items):
    path.write_text("".join(json.dumps(one) + "\n" for one in items))
    return path


def test_questions_and_prompts(tmp_path):
    """Lines may end as on Windows, and a model of lines reads one."""
    windows = item("b", input="w1 w2?\r\n\r\nw3 w4\r\nw5")
    path = write(tmp_path / "q.jsonl", [item("a", output="x"), windows])
    path.write_text(path.read_text() + "\n")
    shot, asked = questions_of(path)
    assert asked == Question("b", "w3 w4\nw5", "w1 w2?", "w6")
    assert prompt_of(asked, [], False) == "w3 w4\nw5\nQ: w1 w2?\nA:"
    assert prompt_of(asked, [shot], False) == "w3 w4\nw5\nQ: w1 w2?\nA: x\n\nw3 w4\nw5\nQ: w1 w2?\nA:"
    assert prompt_of(asked, [shot], True) == "w3 w4 w5 Q: w1 w2? A: x w3 w4 w5 Q: w1 w2? A:"


def test_the_question_is_no_example_of_itself(tmp_path):
    """Draw from a file that holds the question, each of its references too: the same in each call."""
    items = [item(str(n), f"q{n}", f"d{n % 3}", f"a{n}") for n in range(6) for _ in range(3)]
    questions = list(questions_of(write(tmp_path / "q.jsonl", items)))
    drawn = [draw_shots(questions, 2, seed, asked) for asked in questions for seed in range(20)]
    assert drawn == [draw_shots(questions, 2, seed, asked) for asked in questions for seed in range(20)]
    assert all(asked.text not in [shot.text for shot in drawn.pop(0)] for asked in questions for _ in range(20))


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
    assert result["scores"] == question_answering.score("f1", found, references)
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
def test_shots_and_scores(data_set, shots, scores, trained, files):
    examples = ("--examples", str(files / "train.jsonl"), "--answer-tokens", "4", "--limit", "2")
    assert ask(trained, data_set, files, *examples) == 0
    result = json.loads((files / "found.json").read_text())
    assert set(result["scores"]) == scores
    assert result["settings"]["shots"] == shots and result["examples"] == 2


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        ("The red fox.", "a red fox", 1.0),  # articles, case and punctuation do not count
        ("red fox", "the fox and the hound", 2 * (1 / 2) * (1 / 3) / (1 / 2 + 1 / 3)),
        ("fox fox fox", "fox fox hen", 2 / 3),  # two of three on both sides
        ("Theory", "ory", 0.0),  # an article within a word is none
        ("don't", "dont", 1.0),
        ("hen", "fox", 0.0),
        ("", "fox", 0.0),
        ("the", "a", 0.0),  # no word is left: SCROLLS's F1 is 0
    ],
)
def test_f1(answer, reference, expected):
    assert question_answering.f1(answer, reference)["f1"] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("answer", "reference", "expected"),
    [
        # Lin, 2004, section 3: the sequence "police killed the gunman" and three candidates.
        ("police kill the gunman", "police killed the gunman", (3 / 4, 1 / 3, 3 / 4)),
        ("the gunman kill police", "police killed the gunman", (3 / 4, 1 / 3, 2 / 4)),
        ("the gunman police killed", "police killed the gunman", (4 / 4, 2 / 3, 2 / 4)),
        ("A cat, a cat!", "a cat", (2 * (2 / 4) / (1 + 2 / 4), 2 * (1 / 3) / (1 + 1 / 3), 2 * (2 / 4) / (1 + 2 / 4))),
        ("running", "run", (0.0, 0.0, 0.0)),  # words are not stemmed
        ("the", "the", (1.0, 0.0, 1.0)),  # no pair
        ("", "fox", (0.0, 0.0, 0.0)),
    ],
)
def test_rouge(answer, reference, expected):
    found = question_answering.rouge(answer, reference)
    assert [found[name] for name in question_answering.ROUGE] == pytest.approx(expected, abs=1e-12)


def test_means_take_the_best_reference_of_each_score():
    answers = ["police kill the gunman", "hen"]
    references = [["the gunman", "police killed the gunman"], ["fox"]]
    found = question_answering.score("rouge", answers, references)
    assert found["rouge1"] == pytest.approx(100 * (3 / 4) / 2)
    assert found["rouge2"] == pytest.approx(100 * (1 / 2) / 2)  # "the gunman" is the better one here
    assert found["rougeL"] == pytest.approx(100 * (3 / 4) / 2)
    assert found["geometric_mean"] == pytest.approx((37.5 * 25 * 37.5) ** (1 / 3))
    assert question_answering.score("rouge", ["hen"], [["fox"]])["geometric_mean"] == 0.0
    assert question_answering.score("f1", ["red fox", "hen"], [["fox", "red"], ["hen"]])["f1"] == pytest.approx(
        100 * (2 / 3 + 1) / 2
    )
