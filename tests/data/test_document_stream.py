"""Corpora of JSON lines: every token once in an epoch, in an order of its own, from counts kept on disk."""

import json
import tracemalloc
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Tuple

import numpy as np
import pytest
import torch

from fairseq_mega.data import token_index
from fairseq_mega.data.document_stream import BlockIterator, DocumentStream, ReadDocuments, StreamBlockDataset, divided
from fairseq_mega.data.json_lines import Source, json_files
from fairseq_mega.data.text_units import MODEL_FILE, SubwordUnit, SubwordVocabulary
from tests.support import json_texts

EOS = 2


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return json_texts.write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def vocabulary(corpus: Path) -> SubwordVocabulary:
    return SubwordVocabulary(corpus / MODEL_FILE)


@pytest.fixture(autouse=True)
def short_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many spans for the little there is."""
    monkeypatch.setattr(token_index, "SPAN", 700)


def stream_of(files: List[Path], vocabulary: SubwordVocabulary, **options: Any) -> DocumentStream:
    return DocumentStream([Source(file) for file in files], vocabulary, "train", options.pop("seed", 1), **options)


def split(tokens: torch.Tensor) -> Iterator[tuple]:
    """Documents of a stream."""
    found: List[int] = []
    for token in tokens.tolist():
        found.append(token)
        if token == EOS:
            yield tuple(found)
            found = []
    assert not found


def test_an_epoch_holds_every_document_once(corpus: Path, vocabulary: SubwordVocabulary) -> None:
    files = json_files(corpus, "train")
    texts = [json.loads(line)["text"] for file in files for line in file.read_text().splitlines()]
    expected = Counter(tuple(tokens.tolist()) for tokens in vocabulary.encode(texts))
    stream = stream_of(files, vocabulary)
    assert len(files) == 2 and len(stream.counts) > 10 and stream.documents == 100
    read, orders = {}, {}
    for epoch in (1, 2):
        stream.set_epoch(epoch)
        orders[epoch] = stream.order.tolist()
        read[epoch] = stream.span(0, stream.tokens)
        assert Counter(split(read[epoch])) == expected
    assert not read[1].equal(read[2]) and orders[1] != orders[2]
    stream.set_epoch(1)
    assert stream.span(0, stream.tokens).equal(read[1])
    other = stream_of(files, vocabulary, seed=2)
    assert not other.span(0, stream.tokens).equal(read[1]) and other.order.tolist() != stream.order.tolist()
    in_order = [tuple(tokens.tolist()) for tokens in vocabulary.encode(texts)]
    assert list(split(read[1])) != in_order
    documents = ReadDocuments([Source(file) for file in files], vocabulary)
    assert [tuple(documents[i].tolist()) for i in range(len(documents))] == in_order
    assert documents.sizes.tolist() == list(map(len, in_order))


@pytest.mark.parametrize("length", [1, 16, 57, 10**6])
def test_blocks_cover_the_stream(length: int, corpus: Path, vocabulary: SubwordVocabulary) -> None:
    stream = stream_of(json_files(corpus, "train"), vocabulary)
    dataset = StreamBlockDataset(stream, vocabulary.dictionary, length)
    whole = stream.span(0, stream.tokens)
    items = [dataset[i] for i in range(len(dataset))]
    assert torch.cat([item["target"] for item in items]).equal(whole)
    assert torch.cat([item["source"] for item in items]).equal(torch.cat([torch.tensor([EOS]), whole[:-1]]))
    assert [dataset.size(i) for i in range(len(dataset))] == [len(item["target"]) for item in items]
    assert dataset[len(dataset) // 2]["target"].equal(items[len(dataset) // 2]["target"])  # from anywhere


@pytest.mark.parametrize("blocks, size, shards, batches", [(1, 1, 1, 1), (17, 4, 2, 3), (17, 1, 3, 6), (2, 1, 4, 1)])
def test_shards_cover_the_blocks(blocks: int, size: int, shards: int, batches: int) -> None:
    found = divided(np.arange(blocks), size, shards)
    assert found.shape == (shards, batches, size)
    assert found.ravel()[:blocks].tolist() == list(range(blocks)) and (found.ravel()[blocks:] == -1).all()


@pytest.mark.parametrize(
    "runs",
    [
        [(2, 2, 3), (1, 2, None)],
        [(2, 1, 3), (3, 2, 1), (3, 2, 1), (2, 1, None)],  # changed twice, and resumed unchanged in between
        [(4, 1, 2), (2, 3, 0), (4, 1, None)],  # stopped before the first batch
        [(8, 3, 1), (3, 1, None)],  # with processes that have nothing to read
    ],
)
def test_other_processes_read_the_rest_of_an_epoch(
    runs: List[Tuple[int, int, Optional[int]]], corpus: Path, vocabulary: SubwordVocabulary
) -> None:
    """After a change of processes or batch size every block of an epoch is read once, and the next epoch is whole.

    A run is (processes, blocks of a batch, batches before it stops; None: to the end of the epoch).
    """
    dataset = StreamBlockDataset(stream_of(json_files(corpus, "train"), vocabulary), vocabulary.dictionary, 57)
    state: Optional[Dict[str, Any]] = None
    read: List[int] = []
    for processes, size, batches in runs:
        found = [BlockIterator(dataset, size, num_shards=processes, shard_id=shard) for shard in range(processes)]
        for iterator in found:
            if state is not None:
                iterator.load_state_dict(state)
            epoch = iterator.next_epoch_itr()
            for sample in islice(epoch, batches):
                read += sample["id"].tolist() if sample else []
        state = found[0].state_dict()
        assert all(iterator.state_dict() == state for iterator in found)
    assert sorted(read) == list(range(len(dataset)))
    assert state is not None and state["epoch"] == 2
    last = BlockIterator(dataset, 4)
    last.load_state_dict(state)
    assert [i for batch in last.next_epoch_itr() for i in batch["id"].tolist()] == list(range(len(dataset)))


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path, vocabulary: SubwordVocabulary) -> None:
    peaks, sizes = [], []
    for count in (200, 1600):
        text = tmp_path / f"{count}.jsonl"
        json_texts.write(text, json_texts.documents(count, 5))
        sizes.append(text.stat().st_size)
        stream = stream_of([text], vocabulary)
        dataset = StreamBlockDataset(stream, vocabulary.dictionary, 64)
        batches = BlockIterator(dataset, 1).batches
        tracemalloc.start()
        read = sum(len(dataset[block]["target"]) for batch in batches for block in batch)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert read == stream.tokens
    assert peaks[1] - peaks[0] < 0.1 * (sizes[1] - sizes[0]), (peaks, sizes)


def test_tokens_are_counted_once(
    corpus: Path, vocabulary: SubwordVocabulary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, kept = tmp_path / "a.jsonl", tmp_path / "index"
    json_texts.write(file, json_texts.documents(30, 1))
    first = stream_of([file], vocabulary, index_folder=kept)
    assert [path.suffix for path in kept.glob("*.npz")] == [".npz"] and not list(tmp_path.glob(".*"))
    with monkeypatch.context() as patch:
        patch.setattr(token_index, "count", lambda *_: pytest.fail("counted again"))
        second = stream_of([file], vocabulary, index_folder=kept)
        patch.setattr(vocabulary, "digest", "of another model")
        with pytest.raises(pytest.fail.Exception, match="counted again"):
            stream_of([file], vocabulary, index_folder=kept)
    assert second.counts.tolist() == first.counts.tolist() and second.documents == 30
    file.write_bytes(file.read_bytes().replace(b"sea", b"xqz"))
    with pytest.raises(ValueError, match=r"a.jsonl .*changed"):
        second.span(0, second.tokens)
    json_texts.write(file, json_texts.documents(31, 2))
    assert stream_of([file], vocabulary, index_folder=kept).documents == 31
    index = next(kept.glob("*.npz"))
    whole = index.read_bytes()
    for damaged in (b"cut off", whole[:-30], whole.replace(b"tokens", b"tokenz")):
        index.write_bytes(damaged)
        assert stream_of([file], vocabulary, index_folder=kept).documents == 31


@pytest.mark.parametrize("line", [b"{", b'{"text": 3}', b'{"text": "\\ude00"}', b"[" * 100000, b'{"text": "\xfc"}'])
def test_bad_lines_are_named_or_counted(line: bytes, tmp_path: Path, vocabulary: SubwordVocabulary) -> None:
    file = tmp_path / "bad.jsonl"
    good = b'{"text": "the sea"}\n'
    file.write_bytes(40 * good + b'\n{"text": ""}\n' + line + b"\n" + good)
    with pytest.raises(ValueError, match="bad.jsonl, line 43"):
        stream_of([file], vocabulary)
    source = Source(file, bad_lines="skip")
    stream, documents = DocumentStream([source], vocabulary, "train", 1), ReadDocuments([source], vocabulary)
    assert (stream.documents, stream.skipped) == (len(documents), documents.skipped) == (41, 1)


def test_files_of_a_split(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Endings in capitals, and other endings of JSON lines; linked folders once; what is not read is counted."""
    with pytest.raises(FileNotFoundError, match="not found: train"):
        json_files(tmp_path, "train")
    for name in ("train/a.jsonl", "train/b.json", "train/c.JSONL", "train/deeper/part-0001", "train/.g.jsonl"):
        json_texts.write(tmp_path / name, [])
    for name in ("elsewhere/d.ndjson", "train/e.jsonl.gz", "valid.JSON", "card.json"):
        json_texts.write(tmp_path / name, [])
    (tmp_path / "train" / "part").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "round").symlink_to(tmp_path / "train")
    assert [path.name for path in json_files(tmp_path, "train")] == ["a.jsonl", "b.json", "c.JSONL", "d.ndjson"]
    assert [path.name for path in json_files(tmp_path, "valid")] == ["valid.JSON"]
    (message,) = caplog.messages
    assert all(told in message for told in ("1 .gz", "1 without an ending", "1 hidden .jsonl"))
    json_texts.write(tmp_path / "train.jsonl", [])
    with pytest.raises(ValueError, match="several texts of 'train'"):
        json_files(tmp_path, "train")


def test_vocabulary(corpus: Path, vocabulary: SubwordVocabulary) -> None:
    text = "the sea and wind"
    (tokens,) = vocabulary.encode([text])
    assert tokens[-1] == EOS and (tokens[:-1] > 3).all()
    symbols = [vocabulary.dictionary[token] for token in tokens[:-1]]
    assert SubwordUnit(corpus / MODEL_FILE).decode(" ".join(symbols)) == text
    assert len(vocabulary.dictionary) % 8 == 0
    (unknown,) = vocabulary.encode(["\u4e00"])
    assert vocabulary.dictionary.unk() in unknown
