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

from fairseq_mega.models import cost
from fairseq_mega.models.cost import KERNELS, STATE, Step, training_step, zipf_shares
from fairseq_mega.ops.common import native
from tests.support import tiny_lm

WIDTHS = {"decoder_embed_dim": 48, "decoder_hidden_dim": 80, "decoder_z_dim": 32, "decoder_ffn_embed_dim": 40}
SHAPE: Dict[str, Any] = {**WIDTHS, "decoder_layers": 2, "decoder_n_dim": 4, "decoder_chunk_size": 128}
SHAPE.update(max_target_positions=2048, tokens_per_sample=2048, dropout=0.0)
CASES: Dict[str, Dict[str, Any]] = {
    "mega": {},
    "mega, pre-norm, rotary": {"normalize_before": True, "rel_pos_bias": "rotary"},
    "mega, laplace": {"attention_activation_fn": "laplace"},
    "mega, batch norm": {"normalization_type": "batchnorm"},
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
    "mega, batch norm, pre-norm": {"normalization_type": "batchnorm", "normalize_before": True},
    "megalodon, four heads": {"norm_num_groups": 4, "decoder_attention_heads": 4},
}
WHOLE = ("mega, dropouts", "mega, pre-norm, rotary", "mega, laplace", "megalodon", "megalodon, heads, gate")
ALIKE = ("mega, batch norm, pre-norm", "megalodon, four heads", "megalodon, joined maps")
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


@needs_kernels
@pytest.mark.parametrize(
    "case, chunk, bf16",
    [
        *((case, 128, False) for case in CASES),
        *((case, 128, True) for case in ALIKE),
        *((case, -1, number % 2 == 0) for number, case in enumerate(WHOLE)),
        *(
            pytest.param(case, chunk, bf16, marks=pytest.mark.exhaustive)
            for case, chunk, bf16 in [
                *((case, 128, True) for case in CASES if case not in ALIKE),
                *((case, -1, number % 2 == 1) for number, case in enumerate(WHOLE)),
            ]
        ),
    ],
)
def test_what_is_counted_on_paper_is_held(case: str, chunk: int, bf16: bool) -> None:
    name, task = "megalodon_lm" if case.startswith("megalodon") else "mega_lm", tiny_lm.task(496)
    options = {**SHAPE, **CASES[case], "decoder_chunk_size": chunk}
    model = MODEL_REGISTRY[name].build_model(Namespace(**options), task).train()
    step = training_step({**options, "_name": name}, len(task.source_dictionary), bf16)
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        short, long = held(model, task, 768), held(model, task, 1024)
    assert (long.beginning - short.beginning) / 256 == pytest.approx(step.token, rel=NEAR)
    assert step.state == (STATE + (2 if bf16 else 0)) * sum(parameter.numel() for parameter in model.parameters())


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
