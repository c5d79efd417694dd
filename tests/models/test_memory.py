"""The memory of a training step on paper, against what the allocator counts.

What a layer keeps depends on the paths of its operators, and their choice on the processor and on the number of
threads: the tests force those that are counted on paper.
"""

import gc
from argparse import Namespace
from typing import Any, Dict, NamedTuple, Optional, Tuple

import pytest
import torch
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.models import MODEL_REGISTRY
from torch.profiler import ProfilerActivity, profile, record_function

from fairseq_mega.lab.inspect import command as inspect_checkpoint
from fairseq_mega.models import cost
from fairseq_mega.models.cost import KERNELS, STATE, Step, training_step, zipf_shares
from fairseq_mega.ops.common import native
from tests.support import grids, tiny_lm

WIDTHS = {"decoder_embed_dim": 48, "decoder_hidden_dim": 80, "decoder_z_dim": 32, "decoder_ffn_embed_dim": 40}
SHAPE: Dict[str, Any] = {**WIDTHS, "decoder_layers": 2, "decoder_n_dim": 4, "decoder_chunk_size": 128}
SHAPE.update(max_target_positions=2048, tokens_per_sample=2048, dropout=0.0)
CASES: Dict[str, Dict[str, Any]] = {
    "mega": {},
    "mega, pre-norm, rotary": {"normalize_before": True, "rel_pos_bias": "rotary"},
    "mega, laplace": {"attention_activation_fn": "laplace"},
    "mega, scale norm": {"normalization_type": "scalenorm", "normalize_before": True},
    "mega, batch norm": {"normalization_type": "batchnorm"},
    "mega, dropout": {"dropout": 0.1},
    "mega, hidden dropout": {"hidden_dropout": 0.1, "activation_dropout": 0.1},
    "mega, dropouts": {"dropout": 0.1, "attention_dropout": 0.1, "hidden_dropout": 0.1, "activation_dropout": 0.1},
    "megalodon": {"norm_num_groups": 4},
    "megalodon, joined maps": {
        "norm_num_groups": 4,
        "decoder_embed_dim": 64,
        "decoder_hidden_dim": 128,
        "swiglu": True,
    },
    "megalodon, heads, gate": {"norm_num_groups": 4, "decoder_attention_heads": 2, "swiglu": True, "layer_scale": True},
    "megalodon, dropouts": {"norm_num_groups": 4, "dropout": 0.1, "attention_dropout": 0.1, "hidden_dropout": 0.1},
}
MORE: Dict[str, Dict[str, Any]] = {
    **CASES,
    "mega, pre-norm, dropouts": {**CASES["mega, dropouts"], "normalize_before": True},
    "mega, batch norm, pre-norm": {"normalization_type": "batchnorm", "normalize_before": True},
    "megalodon, four heads": {"norm_num_groups": 4, "decoder_attention_heads": 4},
}
WHOLE = ("mega, dropouts", "mega, pre-norm, rotary", "mega, laplace", "megalodon", "megalodon, heads, gate")
ALIKE = ("mega, pre-norm, dropouts", "mega, batch norm, pre-norm", "megalodon, four heads", "megalodon, joined maps")
needs_kernels = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
LAYERS = "the backward pass of the layers"
NEAR = 0.01  # of a token's bytes


class Held(NamedTuple):
    """Bytes that a training step holds beside the weights and their gradients."""

    beginning: int  # when its backward pass begins, the gradients of the logits among them
    most: int  # at any time


@pytest.fixture(autouse=True)
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRSEQ_MEGA_PATHS", KERNELS)


def held(model: torch.nn.Module, task: Any, length: int, tokens: Optional[torch.Tensor] = None) -> Held:
    """Return what a training step on one text of `length` tokens holds."""
    adaptive = tokens is not None
    if tokens is None:
        tokens = torch.randint(4, len(task.source_dictionary), (1, length), generator=torch.Generator().manual_seed(1))
    sample = {"net_input": {"src_tokens": tokens, "src_lengths": torch.tensor([length])}, "target": tokens}
    criterion = (AdaptiveLoss if adaptive else CrossEntropyCriterion)(task, sentence_avg=False)

    def step() -> None:
        loss, _, _ = criterion(model, {**sample, "ntokens": length, "nsentences": 1})
        with record_function("backward"):
            loss.backward()

    def reach_layers(grad: torch.Tensor) -> None:
        with record_function(LAYERS):
            pass

    def note(module: torch.nn.Module, inputs: Any, output: Any) -> None:
        output.hidden.register_hook(reach_layers)

    step()  # what is allocated once
    decoder: Any = model.decoder
    hook = decoder.layers[-1].register_forward_hook(note)
    gc.disable()  # circles of earlier tests are not freed meanwhile
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            step()
    finally:
        gc.enable()
        hook.remove()
    events = sorted(profiled.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    begin, end = (next(e.start_ns() for e in events if e.name() == name) for name in ("backward", LAYERS))
    now = beginning = most = 0
    for event in events:
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
            beginning = max(beginning, now) if begin <= event.start_ns() < end else beginning
    return Held(beginning, most)


def attention_memory(length: int) -> int:
    """Most bytes that a thread of attention's backward kernel works in, for a sequence or a chunk (cpu_backward.cpp).

    Queries, keys, values and gradients of the results as float32 numbers and in panels, and the gradients of the first
    three; the weights and their gradients of 2^20 pairs, or of 64 queries; and those of a block, up to 64 queries.
    """
    z, v, rows = (-(-size // 32) * 32 for size in (WIDTHS["decoder_z_dim"], WIDTHS["decoder_hidden_dim"], length))
    weights = rows * min(rows, max(2**20 // length, 64))
    return 4 * (rows * (6 * z + 5 * v) + 64 * z + 2 * weights + 3 * 64 * rows)


@needs_kernels
@pytest.mark.parametrize("case", CASES)
def test_what_is_counted_on_paper_is_held(case: str) -> None:
    name, task = "megalodon_lm" if case.startswith("megalodon") else "mega_lm", tiny_lm.task(496)
    options = {**SHAPE, **CASES[case]}
    model = MODEL_REGISTRY[name].build_model(Namespace(**options), task).train()
    count = sum(parameter.numel() for parameter in model.parameters())
    step = training_step({**options, "_name": name}, len(task.source_dictionary))
    short, long = held(model, task, 1024), held(model, task, 2048)
    assert (long.beginning - short.beginning) / 1024 == pytest.approx(step.token, rel=NEAR)
    assert step.state == STATE * count


@needs_kernels
@pytest.mark.parametrize(
    "case, chunk, bf16",
    grids.mostly_exhaustive(
        [
            *((case, 128, True) for case in ALIKE),
            *((case, -1, number % 2 == 0) for number, case in enumerate(WHOLE)),
            *((case, 128, True) for case in MORE if case not in ALIKE),
            *((case, -1, number % 2 == 1) for number, case in enumerate(WHOLE)),
        ],
        kept=len(ALIKE) + len(WHOLE),
    ),
)
def test_without_chunks_and_in_bfloat16(case: str, chunk: int, bf16: bool) -> None:
    """And no more is held later on than another layer would keep, beside what attention works in."""
    name, task = "megalodon_lm" if case.startswith("megalodon") else "mega_lm", tiny_lm.task(496)
    options = {**SHAPE, **MORE[case], "decoder_chunk_size": chunk}
    model = MODEL_REGISTRY[name].build_model(Namespace(**options), task).train()
    count = sum(parameter.numel() for parameter in model.parameters())
    step = training_step({**options, "_name": name}, len(task.source_dictionary), bf16)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        short, long = held(model, task, 768), held(model, task, 1024)
    assert (long.beginning - short.beginning) / 256 == pytest.approx(step.token, rel=NEAR)
    another = training_step({**options, "_name": name, "decoder_layers": 3}, len(task.source_dictionary), bf16)
    work = torch.get_num_threads() * attention_memory(1024 if chunk == -1 else chunk)
    assert long.most - long.beginning <= 1024 * (another.token - step.token) + work
    assert step.state == (STATE + (2 if bf16 else 0)) * count


@needs_kernels
@pytest.mark.parametrize("ends, shares", [("600", (0.5, 0.5)), ("600", (1.0, 0.0)), ("400,900", (0.5, 0.25, 0.25))])
@pytest.mark.parametrize("tables", [{}, {"adaptive_input": True, "adaptive_input_factor": 2}])
def test_adaptive_tables(
    ends: str, shares: Tuple[float, ...], tables: Dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a hundredth: places in bands are kept as well, and not all of them at once."""
    task, first, bands = tiny_lm.task(1996), [4, *map(int, ends.split(","))], []
    for begin, end, share in zip(first, [*first[1:], 2000], shares):
        bands += [torch.arange(1024) % (end - begin) + begin] * round(4 * share)
    text = torch.stack(bands, 1).flatten()[None]
    options = {**SHAPE, "adaptive_softmax_cutoff": ends, **tables}
    model = MODEL_REGISTRY["mega_lm"].build_model(Namespace(**options), task).train()
    monkeypatch.setattr(cost, "zipf_shares", lambda ends: shares)
    step = training_step({**options, "_name": "mega_lm"}, 2000)
    short, long = (held(model, task, length, text[:, :length]).beginning for length in (1024, 2048))
    assert abs((long - short) / 1024 / step.token - 1) < 0.01


@needs_kernels
def test_layers_keep_equally_much() -> None:
    options = {**SHAPE, "_name": "mega_lm"}
    one, two, four = (training_step({**options, "decoder_layers": layers}, 500).token for layers in (1, 2, 4))
    assert four - two == 2 * (two - one) > 0


@needs_kernels
@pytest.mark.parametrize("name, symbols", [("mega_lm", 496), ("mega_lm", 28), ("megalodon_lm", 28)])
def test_recomputed_layers_keep_their_inputs(name: str, symbols: int) -> None:
    """And most is held with the logits, or where tokens are few, where a layer runs again."""
    options = {**SHAPE, "decoder_layers": 3, "checkpoint_activations": True, "norm_num_groups": 4}
    task = tiny_lm.task(symbols)
    model = MODEL_REGISTRY[name].build_model(Namespace(**options), task).train()
    step = training_step({**options, "_name": name}, len(task.source_dictionary))
    short, long = held(model, task, 1024), held(model, task, 2048)
    assert (long.most - short.most) / 1024 == pytest.approx(step.token, rel=0.05)
    kept = training_step({**options, "_name": name, "checkpoint_activations": False}, len(task.source_dictionary))
    assert step.token < kept.token


@needs_kernels
def test_a_llama_is_counted_as_well() -> None:
    task, options = tiny_lm.task(496), {"decoder_embed_dim": 64, "decoder_attention_heads": 2, "decoder_layers": 2}
    model = MODEL_REGISTRY["llama_lm"].build_model(Namespace(**options), task).train()
    step = training_step({**options, "_name": "llama_lm"}, len(task.source_dictionary))
    short, long = held(model, task, 768), held(model, task, 1024)
    assert (long.beginning - short.beginning) / 256 == pytest.approx(step.token, rel=NEAR)


def test_zipf() -> None:
    assert zipf_shares((1, 3)) == pytest.approx([6 / 11, 5 / 11])


def test_context() -> None:
    step = Step(state=1000, token=10, parameters=50)
    assert [step.context(memory) for memory in (999, 1000, 1009, 1010, 2000)] == [0, 0, 0, 1, 100]


def test_the_command(tmp_path, capsys) -> None:
    assert inspect_checkpoint.main(["mega_lm_enwik8_base", "--memory", "16", "80", "--symbols", "208"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert (
        first.startswith("39,137,792 parameters with a vocabulary of 208 tokens: 0.58 GiB of training state, ")
        and len(lines) == 2
    )
    model = tiny_lm.build(decoder_chunk_size=128)
    options = Namespace(**{**tiny_lm.TINY, "decoder_chunk_size": 128}, arch="mega_lm", task="mega_language_modeling")
    torch.save({"args": options, "model": model.state_dict()}, tmp_path / "model.pt")
    assert inspect_checkpoint.main([str(tmp_path / "model.pt"), "--memory", "1"]) == 0
    assert f"{sum(p.numel() for p in model.parameters()):,} parameters" in capsys.readouterr().out


SYMBOLS = {  # of architectures, and their parameters: published ones, or those of the usual dictionary
    "mega_lm_enwik8_base": (208, 39_137_792),
    "mega_lm_adaptive_big": (267_744, 252_237_824),
    "megalodon_lm_11m": (260, None),
    "megalodon_lm_1b3_pg19": (32_000, None),
    "mega_lm_tiny": (32_000, None),
    "mega_lm": (32_000, None),
    "mega_lm_small": (32_000, None),  # of recipes with several
}


@pytest.mark.parametrize("name", SYMBOLS)
def test_an_architecture_has_the_symbols_of_its_recipes(name: str, capsys) -> None:
    symbols, parameters = SYMBOLS[name]
    assert inspect_checkpoint.main([name, "--memory", "80"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert f" parameters with a vocabulary of {symbols:,} tokens: " in first
    assert parameters is None or first.startswith(f"{parameters:,} ")


REFUSED = [
    ("mega_wmt_en_de --memory 24", "mega_wmt_en_de: this architecture is not a language model"),
    ("mega_lra_listop --memory 24", "mega_lra_listop: this architecture is not a language model"),
    ("transformer_lm --memory 24", "transformer_lm: this architecture is not a language model"),
    ("x.pt --memory 1", "does not exist"),
]


@pytest.mark.parametrize("words, told", REFUSED)
def test_what_has_no_answer_is_refused(words: str, told: str, capsys) -> None:
    assert inspect_checkpoint.main(words.split()) == 1
    assert told in capsys.readouterr().err
