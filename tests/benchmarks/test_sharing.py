"""Costs on paper of processes that share a training, against what they hold and send."""

from typing import Sequence

import pytest

from fairseq_mega.lab.benchmarks import apart, command
from fairseq_mega.lab.benchmarks.shared_costs import Shared, Sharing
from fairseq_mega.lab.benchmarks.sharing import cases_of
from fairseq_mega.models.cost import AUTOCAST, FLOAT32, ROUNDED
from fairseq_mega.ops.common import native

needs_kernels = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
TINY = {"_name": "megalodon_lm_tiny", "decoder_layers": 3}


FEW = ("copies in pieces", "sharded gathered", "sharded recomputed in pieces")


@needs_kernels
@pytest.mark.slow
@pytest.mark.parametrize(
    "model, processes, cases",
    [
        ("megalodon", 2, FEW),
        *(
            pytest.param(model, processes, tuple(cases_of(processes)), marks=pytest.mark.exhaustive)
            for model in ("mega", "megalodon")
            for processes in (2, 4)
        ),
    ],
)
def test_processes_hold_and_send_what_is_on_paper(model: str, processes: int, cases: Sequence[str]) -> None:
    """Within a tenth, by fairseq's trainer."""
    options = ["--length", "512", "--width", "64", "--layers", "2", "--chunk", "64", "--symbols", "500"]
    arguments = command.parse(["sharing", *options, "--cases", ",".join(cases)])
    found = apart.run_apart(f"{model}:{processes}", arguments, model)
    for case in cases:
        for kind in ("held", "sent"):
            paper = found[f"{case} {kind}_on_paper"]
            assert found[f"{case} {kind}"] == pytest.approx(paper, rel=0.1), f"{case}, {kind}"


@pytest.mark.exhaustive
def test_gloo_writes_what_rings_send() -> None:
    """And no other bytes than those of tensors: headers are a small part of them."""
    arguments = command.parse(["sharing", "--smoke", "--cases", "copies,copies in pieces", "--width", "64"])
    found = apart.run_apart("mega:2", arguments, "mega")
    for case in ("copies", "copies in pieces"):
        assert found[f"{case} sent_on_paper"] == pytest.approx(found[f"{case} written"], rel=0.1)


def test_state_is_exact() -> None:
    for precision, each in ((FLOAT32, 16), (AUTOCAST, 18), (ROUNDED, 20)):
        model = Shared(TINY, 100, precision)
        assert model.held(Sharing(1), 64).state == each * model.parameters
        assert model.held(Sharing(8), 64).state == each * model.parameters
        sharded = model.held(Sharing(8, sharded=True), 64)
        assert sharded.state < model.held(Sharing(2, sharded=True), 64).state < each * model.parameters
    assert ROUNDED.state * model.parameters / 8 <= sharded.state < 1.1 * ROUNDED.state * model.parameters / 8


def test_more_processes_hold_less_and_more_options_send_more() -> None:
    model = Shared(TINY, 100, FLOAT32)
    copies, sharded = Sharing(4), Sharing(4, sharded=True)
    assert sum(model.sent(Sharing(1), 1, 1)) == 0
    assert model.sent(copies, 3, 1) == model.sent(copies, 1, 1)  # once an update
    once, thrice = (model.sent(sharded, passes, 1).weights for passes in (1, 3))
    assert thrice == 3 * once > model.sent(sharded._replace(gathered=True), 3, 1).weights
    pieces = model.sent(copies._replace(pieces=2), 1, 2)
    assert pieces.weights == model.sent(copies, 1, 1).weights and pieces.memory > pieces.gradients > 0
    assert pieces.memory == 2 * model.sent(copies._replace(pieces=2), 1, 1).memory
    assert model.held(sharded, 64).total < model.held(copies, 64).total
    assert model.held(sharded._replace(recomputed=True), 4096).total < model.held(sharded, 4096).total
