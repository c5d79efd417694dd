"""Sampling, generation through MegaLanguageModel.from_pretrained, and evaluations of whole texts."""

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.models.streams.generator import draw
from fairseq_mega.models.streams.scoring import Carry, ScoredOnce
from tests.support import eager_graphs
from tests.support.helpers import random_sentences, run_fairseq

EOS = 2


@pytest.fixture(scope="module")
def trained(tmp_path_factory, device_flags):
    """Folders of a model's checkpoint and of its data."""
    folder = tmp_path_factory.mktemp("generator")
    text = "".join(f"{line}\n" for line in random_sentences(120, 3))
    (folder / "text.txt").write_text(text)
    data = folder / "data-bin"
    run_fairseq("preprocess", ["--only-source", "--trainpref", folder / "text.txt", "--destdir", data])
    options = ["--arch", "mega_lm_tiny", "--decoder-chunk-size", 8, "--max-tokens", 100, "--lr", 0.01, *device_flags]
    options += ["--optimizer", "adam", "--max-update", 20, "--disable-validation", "--num-workers", 0]
    run_fairseq("train", [data, "--task", "mega_language_modeling", *options, "--save-dir", folder])
    return str(folder), str(data)


@pytest.fixture(scope="module")
def generator(trained):
    folder, data = trained
    return MegaLanguageModel.from_pretrained(folder, "checkpoint_last.pt", data)


@pytest.mark.parametrize("length", [1, 7, 8, 9, 16, 19])
def test_greedy_stream_equals_full_forwards(generator, length):
    (model,) = generator.models
    prompt = [EOS, *(4 + i % 15 for i in range(length - 1))]
    tokens = list(prompt)
    for _ in range(12):
        scores = model(torch.tensor([tokens]))[0][0, -1]
        scores[[0, 1, 3]] = -math.inf  # <s>, padding and <unk>
        tokens.append(int(scores.argmax()))
    stream = generator.stream(prompt, temperature=0.0)
    assert [next(stream) for _ in range(12)] == tokens[length:]


def test_complete(generator):
    assert generator.complete("w1\nw2 w3", 15, seed=1) == generator.complete("w1\nw2 w3", 15, seed=1)
    assert generator.complete("w1", 15, seed=1) != generator.complete("w1", 15, seed=2)
    text = generator.complete("w1", 200, seed=1)
    assert "\n" in text and set(text.split()) <= {f"w{i}" for i in range(20)}
    assert len(text.split()) + text.count("\n") == 200
    assert "\n" not in generator.complete("w1", 200, seed=1, stop_at_line_end=True)
    assert generator.complete("w1", 0) == ""


def test_graphs_give_the_same_text(generator, monkeypatch):
    """Across ends of chunks, two streams in turn, and a context that is continued twice."""

    def texts():
        context = generator.read("w1 w2\nw3 w4 ")
        streams = [generator.stream("w5 w6", context=context, temperature=0.0), generator.stream("w7", temperature=0.0)]
        taken = ["".join(next(streams[step % 2]) for step in range(40))]
        completed = [generator.complete("w1\nw2 w3", 30, seed=1, context=given) for given in (None, context, context)]
        return taken + completed + [generator.complete("", 30, temperature=0.7, top_k=5, seed=2)]

    expected = texts()
    captured = eager_graphs.use(monkeypatch)
    assert texts() == expected and texts() == expected
    assert len(captured) == 3  # the two streams, and the one text that is completed beside them


USES = {
    "complete": lambda generator, text: generator.complete(text, 1),
    "stream": lambda generator, text: next(generator.stream(text)),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize(("text", "unknown", "tokens"), [("w1 <unk>", 0, 2), ("e\u0301 w1 w\u00ad2 w3", 2, 4)])
def test_unknown_tokens_are_logged(generator, text, unknown, tokens, use, caplog):
    """A model reads every word that it does not know as the same one, whatever reads the text."""
    with caplog.at_level("WARNING"):
        USES[use](generator, text)
    logged = [message for message in caplog.messages if "unknown" in message]
    assert len(logged) == (unknown > 0) and all(line.startswith(f"{unknown} of the {tokens} tokens") for line in logged)


@pytest.mark.parametrize("tokens", [[], [2, -1], [2, 1000]])
def test_tokens_that_no_dictionary_has(generator, tokens):
    with pytest.raises(ValueError, match="prompt"):
        next(generator.stream(tokens))


def frequencies(options, count=20000):
    scores = torch.tensor([0.5, 0.25, 0.15, 0.1]).log().repeat(count, 1)
    drawn = draw(scores, generator=torch.Generator().manual_seed(1), **options)
    return torch.bincount(drawn, minlength=4) / count


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, [0.5, 0.25, 0.15, 0.1]),
        ({"temperature": 0.0}, [1, 0, 0, 0]),
        ({"temperature": 0.5}, [0.7246, 0.1812, 0.0652, 0.0290]),
        ({"top_k": 2}, [2 / 3, 1 / 3, 0, 0]),
        ({"top_p": 0.5}, [1, 0, 0, 0]),
        ({"top_p": 0.89}, [5 / 9, 2.5 / 9, 1.5 / 9, 0]),
        ({"top_p": 0.7, "top_k": 2}, [2 / 3, 1 / 3, 0, 0]),
    ],
)
def test_sampling(options, expected):
    torch.testing.assert_close(frequencies(options), torch.tensor(expected, dtype=torch.float), atol=0.015, rtol=0)


class Segments:
    """A text of five tokens in two segments."""

    text = SimpleNamespace(tokens=5)
    segments = np.array([[0, 3], [3, 5]])

    def __len__(self):
        return len(self.segments)


def test_an_evaluation_scores_each_token_once():
    segments: Any = Segments()
    batches = [{"id": torch.tensor([number]), "ntokens": tokens} for number, tokens in enumerate((3, 2))]
    assert list(ScoredOnce(batches, segments, Carry())) == batches
    for others in (batches[:1], [*batches, batches[1]]):
        with pytest.raises(RuntimeError):
            list(ScoredOnce(others, segments, Carry()))
