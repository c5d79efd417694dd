"""Scores of answers against values by hand and published ones."""

import pytest

from fairseq_mega.lab.evaluate.question_answering import scores


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
    assert scores.f1(answer, reference) == pytest.approx(expected, abs=1e-12)


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
    found = scores.rouge(answer, reference)
    assert [found[name] for name in scores.ROUGE] == pytest.approx(expected, abs=1e-12)


def test_means_take_the_best_reference_of_each_score():
    answers = ["police kill the gunman", "hen"]
    references = [["the gunman", "police killed the gunman"], ["fox"]]
    found = scores.score("rouge", answers, references)
    assert found["rouge1"] == pytest.approx(100 * (3 / 4) / 2)
    assert found["rouge2"] == pytest.approx(100 * (1 / 2) / 2)  # "the gunman" is the better one here
    assert found["rougeL"] == pytest.approx(100 * (3 / 4) / 2)
    assert found["geometric_mean"] == pytest.approx((37.5 * 25 * 37.5) ** (1 / 3))
    assert scores.score("rouge", ["hen"], [["fox"]])["geometric_mean"] == 0.0
    assert scores.score("f1", ["red fox", "hen"], [["fox", "red"], ["hen"]])["f1"] == pytest.approx(
        100 * (2 / 3 + 1) / 2
    )
