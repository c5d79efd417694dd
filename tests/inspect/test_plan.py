"""fairseq-mega-inspect --plan: costs of processes against what they hold and send, and the settings that it lists."""

from typing import Any, List, Sequence

import pytest

from fairseq_mega.lab.benchmarks import apart, command
from fairseq_mega.lab.benchmarks.shared_costs import Sent, Shared, Sharing
from fairseq_mega.lab.benchmarks.sharing import cases_of
from fairseq_mega.lab.inspect import command as inspect_checkpoint
from fairseq_mega.lab.inspect.plan import Machine, Planner, left_a_node, planned
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


@pytest.mark.parametrize(
    "nodes, gpus, pieces, left", [(1, 8, 8, 0), (2, 8, 8, 100), (2, 8, 16, 110), (4, 2, 8, 111), (2, 3, 2, 110)]
)
def test_bytes_that_leave_a_node(nodes: int, gpus: int, pieces: int, left: int) -> None:
    """A ring leaves it once, and memory and gradients where pieces of a sequence are on both sides of a border."""
    assert left_a_node(Sent(weights=100, memory=10, gradients=1), pieces, Machine(nodes, gpus, 1.0)) == left


def plans(machine: Machine, tokens: Any = None) -> Any:
    return planned(Planner("megalodon_lm_tiny", "fp32", symbols=100), machine, tokens)


def test_the_best_comes_first_and_all_that_fits() -> None:
    """Settings that share sequences are offered where the batch has fewer of them than there are GPUs."""
    work, fitting, others = plans(Machine(2, 2, 1.0), 2 * 8 * 64)
    assert (work.length, work.sequences, others) == (512, 2, [])
    assert {setting.sharing.pieces for setting in fitting} == {2, 4}
    recomputed = [setting.sharing.recomputed for setting in fitting]
    assert recomputed == sorted(recomputed) and len(fitting) == 2 * 3 * 2
    sent = [setting.sent.most(setting.sharing.pieces) for setting in fitting if not setting.sharing.recomputed]
    assert sent == sorted(sent)
    assert all(setting.passes * setting.sequences == setting.sharing.pieces // 2 for setting in fitting)
    least = min(setting.held.total for setting in fitting)
    _, fitting, others = plans(Machine(2, 2, least / 2**30), 2 * 8 * 64)
    assert fitting and others and all(setting.held.total <= least for setting in fitting)


def run(words: str, capsys: Any) -> List[str]:
    assert inspect_checkpoint.main(words.split()) == 0
    return capsys.readouterr().out.splitlines()


def test_the_command(capsys: Any) -> None:
    words = "--plan megalodon_lm_tiny --nodes 2 --gpus 2 --gib 1 --symbols 100 --batch 1024"
    assert inspect_checkpoint.main(words.split()) == 0
    printed = capsys.readouterr()
    assert "2 x 2 GPUs: 12 settings are estimated" in printed.err
    lines = printed.out.splitlines()
    assert "2 x 2 GPUs of 1 GiB; an update of 1,024 tokens in sequences of 512" in lines[0]
    (first,) = (line for line in lines if line.startswith("The first: "))
    for option in (
        "--arch megalodon_lm_tiny",
        "--distributed-world-size 4",
        "--variant-block-multiple-max 8",
        "--chunk-parallel-size 2",
    ):
        assert option in first
    lines = run("--plan llama_lm --symbols 100 --context 64 --gib 0.2", capsys)
    assert len(lines) == 2 and lines[1].startswith("No setting fits: the smallest requires ") and "nodes" in lines[1]
    lines = run("--plan megalodon_lm_tiny --gib 1e-4", capsys)
    assert len(lines) == 2 and "more nodes do not help" in lines[1]


REFUSED = [
    ("megalodon_lm_tiny --plan", "--plan requires the memory of a GPU: give --gib M"),
    ("megalodon_lm_tiny --plan --gib 0", "--gib 0: give the GiB of a GPU"),
    ("megalodon_lm_tiny --plan --gib 1 --nodes 0", "--nodes 0: give 1 or more"),
    ("megalodon_lm_tiny --plan --gib 1 --context 0", "--context 0: give 1 to "),
    ("megalodon_lm_tiny --plan --gib 1 --context 150", "--context 150: a training sequence has whole chunks, give "),
    ("megalodon_lm_tiny --plan --gib 1 --batch 100", "--batch 100: give whole sequences, a multiple of 512"),
    ("megalodon_lm_tiny --plan --gib 1 --gpus 16 --batch 512", "give a multiple of 1024"),
    ("llama_lm --plan --gib 1", "llama_lm has no chunks: give the tokens of a training sequence, --context N"),
    ("mega_lra_listop --plan --gib 1", "this architecture is not a language model of this package: --plan accepts"),
]


@pytest.mark.parametrize("words, told", REFUSED)
def test_what_has_no_answer_is_refused(words: str, told: str, capsys: Any) -> None:
    assert inspect_checkpoint.main(words.split()) == 1
    assert told in capsys.readouterr().err
