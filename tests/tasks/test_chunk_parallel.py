"""Processes that share sequences: losses and gradients are those of one process, and none waits for a dead one."""

import os
import time
from functools import partial
from types import SimpleNamespace
from typing import Any, Dict, List

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F

from fairseq_mega.models.process_wire import LostNeighbour, ProcessWire
from fairseq_mega.tasks.chunk_parallel import ChunkParallel, bounds, join
from tests.support import tiny_lm, tiny_megalodon
from tests.support.numerics import assert_close
from tests.support.processes import run_group, start_group

PAD, EOS, CHUNK = 1, 2, 5
BUILD: Dict[str, Any] = {"mega": tiny_lm.build, "megalodon": tiny_megalodon.build}
WHOLE = list(BUILD)
BUILD.update({f"{kind} documents": partial(BUILD[kind], reset_at_document_ends=True) for kind in WHOLE})
LENGTHS = (37, 20, 8)  # a last piece that ends within a chunk, whole chunks, fewer chunks than pieces


def build(kind, **options):
    model = BUILD[kind](dropout=0.0, **options).double().train()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, dtype=torch.float64, generator=generator))
    return model


def batch(length, replica=0):
    """A batch of fairseq's form, padded on the right."""
    text = tiny_lm.tokens(3, length + 1, seed=replica)
    text[1, length // 2 :] = PAD
    text[2, 4::8] = EOS  # one where the second of two pieces begins
    tokens, target = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    count = int(target.ne(PAD).sum())
    return {"net_input": {"src_tokens": tokens}, "target": target, "ntokens": count}


def loss_of(model, sample):
    logits = model(**sample["net_input"])[0]
    return F.cross_entropy(logits.flatten(0, 1), sample["target"].flatten(), ignore_index=PAD, reduction="sum")


def sums(model, sample):
    """Loss, tokens and all gradients of a batch, added up over all processes where there are several."""
    model.zero_grad()
    loss = loss_of(model, sample)
    loss.backward()
    parts = {"loss": loss.detach(), "tokens": torch.tensor(float(sample["ntokens"]), dtype=torch.float64)}
    parts.update({name: parameter.grad for name, parameter in model.named_parameters()})
    if dist.is_initialized():
        for part in parts.values():
            dist.all_reduce(part)
    return parts


def share(rank, sizes, kinds):
    """The sums of groups of each size, for every model and length."""
    found: Dict[str, Any] = {}
    for size in sizes:
        parallel = ChunkParallel(ProcessWire(size, timeout=60), CHUNK, PAD)
        for kind in kinds:
            model = build(kind)
            for length in LENGTHS:
                sample = parallel.begin(batch(length, replica=rank // size))
                found[f"{size} {kind} {length}"] = sums(model, sample)
    return found


@pytest.mark.parametrize("processes, sizes, kinds", [(2, [2], list(BUILD)), (4, [4, 2], WHOLE)])
def test_all_sums_are_those_of_one_process(processes, sizes, kinds, tmp_path):
    """Sums over all processes equal those of one; two groups of 2 among 4 processes read batches of their own."""
    results = run_group(share, processes, tmp_path, sizes, kinds)
    for size in sizes:
        for kind in kinds:
            model = build(kind)
            for length in LENGTHS:
                of_one: Dict[str, Any] = {}
                for replica in range(processes // size):
                    for name, part in sums(model, batch(length, replica)).items():
                        of_one[name] = of_one.get(name, 0) + part.clone()
                for result in results:
                    for name, part in result[f"{size} {kind} {length}"].items():
                        assert_close(f"{name} of {kind}, length {length}", part, of_one[name])


def wait_for_one_that(rank, how, timeout):
    """Seconds until the error about a neighbour that dies or sleeps in mid-pass."""
    wire = ProcessWire(2, timeout)
    wire.meet()
    if rank == 0:
        os._exit(3) if how == "dies" else time.sleep(60)  # until it is killed
    start = time.monotonic()
    with pytest.raises(LostNeighbour):
        wire.receive(torch.empty(8, dtype=torch.uint8), True, 0)
    return time.monotonic() - start


@pytest.mark.parametrize("how, timeout", [("dies", 60), ("sleeps", 1)])
def test_a_lost_neighbour_ends_the_pass(how, timeout, tmp_path):
    lost, waiting = start_group(wait_for_one_that, 2, tmp_path, how, timeout)
    waiting.join(40)
    lost.kill()
    lost.join()
    assert waiting.exitcode == 0
    assert torch.load(tmp_path / "1") < 30  # seconds


def dies_between_passes(rank, connected):
    wire = ProcessWire(2, 60)
    if rank == 0:
        while not connected.exists():  # the other one's groups, too
            time.sleep(0.01)
        os._exit(3)
    connected.touch()
    with pytest.raises(LostNeighbour):
        wire.meet()


def test_a_process_that_is_gone_between_batches_is_noticed(tmp_path):
    _, waiting = start_group(dies_between_passes, 2, tmp_path, tmp_path / "connected")
    waiting.join(40)
    assert waiting.exitcode == 0


@pytest.mark.parametrize("pieces", [1, 2, 3, 7])
@pytest.mark.parametrize("length", [1, 5, 6, 23, 35])
def test_pieces_cover_the_sequence_in_whole_chunks(length, pieces):
    spans = bounds(length, CHUNK, pieces)
    assert [step for begin, end in spans for step in range(begin, end)] == list(range(length))
    assert len(spans) == pieces and all(begin % CHUNK == 0 for begin, end in spans if end > begin)
    chunks: List[int] = [-(-(end - begin) // CHUNK) for begin, end in spans]
    assert max(chunks) - min(chunks) <= 1 and chunks == sorted(chunks, reverse=True)


class LoneWire(ProcessWire):
    """A piece without processes around it."""

    def __init__(self, piece: int, size: int) -> None:
        self.piece, self.size = piece, size
        self.first, self.last = piece == 0, piece == size - 1

    def meet(self) -> None:
        pass


def test_pieces_drop_at_places_of_their_own():
    drawn = []
    for piece in (0, 1, 0):
        torch.manual_seed(5)  # as fairseq does in every process
        ChunkParallel(LoneWire(piece, 2), CHUNK, PAD).begin(batch(10))
        drawn.append(torch.rand(3).tolist() + torch.rand(3).tolist())
    assert drawn[0] == drawn[2] != drawn[1]


def test_sentences_are_counted_by_the_first_piece():
    by_sentence, by_token = SimpleNamespace(sentence_avg=True), SimpleNamespace(sentence_avg=False)
    logged = {"nsentences": 3, "sample_size": 3, "loss": 1.0}
    first, second = (ChunkParallel(LoneWire(piece, 2), CHUNK, PAD) for piece in range(2))
    assert first.count_sentences_once(by_sentence, 3, logged) == (3, logged)
    assert second.count_sentences_once(by_sentence, 3, logged) == (0, {"nsentences": 0, "sample_size": 0, "loss": 1.0})
    assert second.count_sentences_once(by_token, 3, logged) == (3, {**logged, "nsentences": 0})


def test_groups_read_shards():
    members = [ChunkParallel(LoneWire(rank % 2, 2), CHUNK, PAD) for rank in range(4)]
    shards = [member.shard({"num_shards": 4, "shard_id": rank}) for rank, member in enumerate(members)]
    assert [(found["num_shards"], found["shard_id"]) for found in shards] == [(2, 0), (2, 0), (2, 1), (2, 1)]


@pytest.mark.parametrize(
    "size, options, message",
    [
        (3, {}, "--chunk-parallel-size 3"),
        (2, {"decoder_chunk_size": -1}, "--decoder-chunk-size"),
        (2, {"truncation_length": 14}, "--truncation-length 14"),
        (2, {"feature_dropout": True, "dropout": 0.1}, "--feature-dropout"),
        (2, {"normalization_type": "batchnorm", "normalize_before": False, "no_affine_final_norm": False}, "batchnorm"),
    ],
)
def test_what_cannot_be_shared_is_refused(size, options, message, monkeypatch):
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 4)
    given = SimpleNamespace(chunk_parallel_size=size, chunk_parallel_timeout=60.0, variant_block_multiple_max=3)
    with pytest.raises(ValueError, match=message):
        join(given, tiny_lm.build(**options), PAD)
