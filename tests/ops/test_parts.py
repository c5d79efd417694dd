"""Parts of sequences as rows, and the timestep norm of documents."""

from typing import Any, Dict

import pytest
import torch

from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.parts import Parts
from fairseq_mega.ops.timestep_norm import TimestepNormState, fresh_statistics, timestep_norm
from tests.ops.timestep_norm_cases import COUNTS, draw
from tests.support.numerics import GRADIENT_FACTOR, OUTPUT_FACTOR, assert_close, gradients, leaves

LENGTHS = (1, 2, 17, 64)


def drawn_begins(batch, length, share, seed=0):
    return torch.rand(batch, length, generator=torch.Generator().manual_seed(seed)) < share


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_rows_hold_every_step_once(length, share):
    begins = drawn_begins(3, length, share)
    parts = Parts(begins)
    steps = torch.arange(3 * length).view(3, length)
    rows = parts.split(steps)
    assert torch.equal(parts.join(rows), steps)
    begins[:, 0] = True
    assert torch.equal(parts.row, begins.nonzero()[:, 0])
    assert torch.equal(parts.last, begins.sum(1).cumsum(0) - 1)
    firsts = parts.join_results(row[:, 0] for row in rows)
    assert torch.equal(firsts, begins.flatten().nonzero().squeeze(1))
    for group in parts.groups:  # less than half of a group is filled up
        assert 2 * group.absent.sum() < group.absent.numel()


def by_documents(tensors, begins, state, mask):
    """The norm of each document in a call of its own, by the reference."""
    x, found, last = tensors["x"], [], []
    options: Dict[str, Any]
    for row in range(len(x)):
        borders = sorted({0, *begins[row].nonzero().flatten().tolist()})
        before = TimestepNormState(*(part[row, None] for part in state))
        for begin, end in zip(borders, [*borders[1:], x.size(1)]):
            if begins[row, begin]:
                before = fresh_statistics(x[:1], 2)
            document = x[row, None, begin:end]
            padding = None if mask is None else mask[row, None, begin:end]
            options = {"state": before, "padding_mask": padding, "path": "reference"}
            y, before = timestep_norm(document, tensors["weight"], tensors["bias"], 2, **options)
            found.append(y[0])
        last.append(before)
    return torch.cat(found).view_as(x), TimestepNormState(*map(torch.cat, zip(*last)))


def results_of(tensors, dtype, begins, mask, path=None):
    """Output, last statistics and gradients; without a path document by document."""
    given = leaves(tensors, dtype)
    state = TimestepNormState(torch.tensor(COUNTS), given["mean"], given["variance"])
    if path is None:
        y, after = by_documents(given, begins, state, mask)
    else:
        y, after = timestep_norm(
            given["x"],
            given["weight"],
            given["bias"],
            2,
            state=state,
            padding_mask=mask,
            documents=Parts(begins),
            path=path,
        )
    found = {"y": y, "mean": after.mean.to(dtype), "variance": after.variance.to(dtype)}
    found["count"] = after.count.double()
    both = torch.cat([y.double().flatten(), after.mean.flatten(), after.variance.flatten()])
    found.update({f"gradient of {name}": part for name, part in gradients(both, given).items()})
    return found


@pytest.mark.parametrize("path", ["reference", "torch", "native"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
def test_timestep_norm_of_documents(path, padded, length):
    """Documents have the results of each one alone, the first of a sequence with the statistics from before."""
    if path == "native" and native.PROBLEM is not None:
        pytest.skip(f"no compiled kernels: {native.PROBLEM}")
    tensors, begins = draw(length), drawn_begins(len(COUNTS), length, 0.2, seed=length)
    begins[0, 0] = True
    mask = drawn_begins(len(COUNTS), length, 0.3, seed=7) if padded else None
    dtype = torch.float32 if path == "native" else torch.float64
    exact = results_of(tensors, torch.float64, begins, mask)
    baseline = results_of(tensors, dtype, begins, mask)
    for name, found in results_of(tensors, dtype, begins, mask, path).items():
        factor = GRADIENT_FACTOR if name.startswith("gradient") else OUTPUT_FACTOR
        assert_close(name, found, exact[name], baseline[name], factor)
