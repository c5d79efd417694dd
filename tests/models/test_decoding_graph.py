"""Decoding by one graph: its steps against ordinary ones, its owners, and what a capture could not hold."""

from typing import Any, Callable, Dict, List

import pytest
import torch
from fairseq.search import Sampling
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor
from torch.nn.utils import parametrizations
from torch.testing import assert_close

from fairseq_mega.lab.benchmarks import launches
from fairseq_mega.models import decoding_graph
from fairseq_mega.models.decoding_graph import DecodingGraph, GraphStream, on_graph
from fairseq_mega.modules.dropout import Dropout
from fairseq_mega.ops.common import native
from tests.support import eager_graphs, tiny_llama, tiny_lm, tiny_megalodon
from tests.support.tiny_lm import ADAPTIVE, tokens
from tests.support.tiny_mega import EOS, PAD, dictionary, lively

BUILDERS: Dict[str, Callable[..., Any]] = {
    "mega": tiny_lm.build,
    "megalodon": tiny_megalodon.build,
    "llama": tiny_llama.build,
}
MODELS: Dict[str, Dict[str, Any]] = {
    "mega": {},
    "mega simple": {"rel_pos_bias": "simple", "normalize_before": False},
    "mega laplace": {"attention_activation_fn": "laplace"},
    "mega relu2": {"attention_activation_fn": "relu2"},
    "megalodon": {},
    "megalodon one-head": {"decoder_attention_heads": 1, "layer_scale": True, "no_padding_logit": True},
}
UNTIED = {name: value for name, value in ADAPTIVE.items() if "adaptive_input" not in name and "tie" not in name}
CHUNK, CPU = 5, torch.device("cpu")  # chunk of the tiny models


def build(name: str, **options: Any) -> Any:
    return lively(BUILDERS[name.split()[0]](**{**MODELS.get(name, {}), **options}))


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> List[Any]:
    monkeypatch.setattr(decoding_graph, "_failures", [])
    return eager_graphs.use(monkeypatch)


def begun(model: Any, read: Tensor, reorders: bool = False) -> GraphStream:
    """Return streams on a graph after some tokens."""
    stream = on_graph(model.decoder, read.device, len(read), model.decoder.advance(read)[1], reorders)
    assert stream is not None
    return stream


@pytest.mark.parametrize("prompt", [1, CHUNK - 1, CHUNK, 2 * CHUNK + 1])
@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_steps_equal_ordinary_steps(captured: List[Any], name: str, prompt: int) -> None:
    """Over several ends of chunks, with </s> in some rows."""
    model, read = build(name), tokens(3, 27)
    read[0, 3::4] = EOS
    state, stream = model.decoder.advance(read[:, :prompt])[1], begun(model, read[:, :prompt])
    for token in read[:, prompt:].split(1, dim=1):
        expected, state = model.decoder.advance(token, state)
        found, same = model.decoder.advance(token, stream)
        assert same is stream and len(captured) == 1
        assert_close(found, expected, atol=1e-9, rtol=0)
    assert_close(*(scores(model, tokens(3, 6), s) for s in (stream.state(), state)), atol=1e-9, rtol=0)


def scores(model: Any, read: Tensor, state: Any) -> Tensor:
    """Log probabilities after each token, by ordinary steps."""
    found = []
    for token in read.split(1, dim=1):
        log_probs, state = model.decoder.advance(token, state)
        found.append(log_probs)
    return torch.stack(found, dim=1)


def search(model: Any, sampled: bool = False, prompts: Any = None) -> List[Any]:
    """Hypotheses of fairseq's generator for prompts of several lengths."""
    read = torch.tensor([[4, 5, 6], [7, 8, PAD], [9, PAD, PAD]]) if prompts is None else prompts
    torch.manual_seed(0)
    strategy = Sampling(dictionary(), sampling_topk=5) if sampled else None
    options: Dict[str, Any] = {"beam_size": 4, "max_len_a": 1, "max_len_b": 14, "search_strategy": strategy}
    generator = SequenceGenerator([model], dictionary(), **options)
    sample = {"net_input": {"src_tokens": read, "src_lengths": read.ne(PAD).sum(1)}}
    found = generator.generate([model], sample, prefix_tokens=read, bos_token=EOS)
    return [(hypothesis["tokens"], hypothesis["positional_scores"]) for row in found for hypothesis in row]


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("name", ["mega", "megalodon", "megalodon one-head", "mega adaptive"])
def test_searches_find_the_same(captured: List[Any], name: str, sampled: bool) -> None:
    """Beams are reordered across ends of chunks, and sentences that end leave the batch."""
    seed = 2 if "one-head" in name else 3  # models that end some sentences early
    model = build(name, seed=seed, **(UNTIED if "adaptive" in name else {})).float()
    model.decoder.use_graphs = False
    expected = search(model, sampled)
    assert not captured and len({len(found) for found, _ in expected}) > 2
    model.decoder.use_graphs = True
    for _ in range(2):  # the second search finds the memory of the first
        for (found, values), (wanted, wanted_values) in zip(search(model, sampled), expected):
            assert found.tolist() == wanted.tolist()
            assert_close(values, wanted_values, atol=1e-4, rtol=0)
    assert len(captured) == 1


@torch.no_grad()
def test_streams_in_turn_and_streams_that_a_graph_cannot_continue(captured: List[Any]) -> None:
    model, read = build("mega"), tokens(2, 14)
    expected = scores(model, read, None)
    first, second = begun(model, read[:1, :3]), begun(model, read[1:, :3])
    for step in range(3, 8):
        for row, stream in enumerate((first, second)):
            log_probs, same = model.decoder.advance(read[row : row + 1, step : step + 1], stream)
            assert_close(log_probs[0], expected[row, step], atol=1e-9, rtol=0)
            assert same is stream
    assert len(captured) == 2  # a graph for each
    log_probs, state = model.decoder.advance(read[:1, 8:10], first)  # two tokens at once
    assert_close(log_probs[0], expected[0, 9], atol=1e-9, rtol=0)
    del first
    third = on_graph(model.decoder, CPU, 1, state)
    assert third is not None and len(captured) == 2  # in the memory that is free again
    assert_close(model.decoder.advance(read[:1, 10:11], third)[0][0], expected[0, 10], atol=1e-9, rtol=0)


@torch.no_grad()
def test_memory_of_fairseq_in_all_uses(captured: List[Any]) -> None:
    model, read = build("megalodon"), tokens(2, 16)
    decoder, expected = model.decoder, model(read)[0]
    memory: Dict[str, Any] = {}
    assert_close(decoder(read[:, :2], incremental_state=memory)[0], expected[:, :2])
    order = torch.tensor([1, 0, 1])
    for step, rows in ((3, [0, 1]), (4, [0, 1]), (5, [1, 0, 1]), (6, [1, 0, 1]), (7, [1, 0, 1])):
        if step == 5:
            decoder.reorder_incremental_state(memory, order)  # more rows than the graph has memory for
        assert_close(decoder(read[rows, :step], incremental_state=memory)[0][:, 0], expected[rows, step - 1])
    assert len(captured) == 2 and captured[1] is not None
    decoder.reorder_incremental_state(memory, torch.tensor([2, 1]))
    decoder.reorder_incremental_state(memory, torch.tensor([1, 1]))  # before the step
    assert_close(decoder(read[[0, 0], :8], incremental_state=memory)[0][:, 0], expected[[0, 0], 7])
    features = decoder(read[[0, 0], :9], incremental_state=memory, features_only=True)[0]
    assert_close(decoder.output_layer(features)[:, 0], expected[[0, 0], 8])
    assert_close(decoder(read[[0, 0], :12], incremental_state=memory)[0], expected[[0, 0], 9:12])
    assert_close(decoder(read[[0, 0], :13], incremental_state=memory)[0][:, 0], expected[[0, 0], 12])
    with pytest.raises(ValueError):
        decoder(read[[0, 0], :13], incremental_state=memory)


@torch.no_grad()
def test_weights_may_change_between_steps(captured: List[Any]) -> None:
    model, read = build("mega"), tokens(1, 9)
    stream: Any = begun(model, read[:, :3])
    for name in ("attention.ema.alpha", "attention.relative_bias.alpha", "feed_forward.fc1.weight"):
        before, count = stream.state(), len(captured)
        model.decoder.layers[0].get_parameter(name).mul_(2.0)
        found, stream = model.decoder.advance(read[:, 3:4], stream)
        assert_close(found, model.decoder.advance(read[:, 3:4], before)[0], atol=1e-9, rtol=0)
        assert len(captured) == count + 1


@pytest.mark.parametrize("name", ["mega", "mega simple", "megalodon"])
@torch.no_grad()
def test_new_streams_see_writes_to_the_data_of_weights(captured: List[Any], name: str) -> None:
    """Such writes, as of fairseq's optimizers, leave no trace that a capture could compare."""
    model, read = build(name), tokens(1, 9)
    begun(model, read)
    for parameter in model.parameters():
        parameter.data.mul_(1.1)
    expected = scores(model, read, None)
    _, stream = model.decoder.advance(read[:, 3:4], begun(model, read[:, :3]))
    assert_close(model.decoder.advance(read[:, 4:5], stream)[0], expected[:, 4], atol=1e-9, rtol=0)
    assert len(captured) == 1


@pytest.mark.parametrize("fails", [True, False])
def test_a_capture_that_fails_or_is_wrong_changes_no_text(
    captured: List[Any], monkeypatch: Any, caplog: Any, fails: bool
) -> None:
    def fail(run: Any, device: Any) -> Any:
        out = run()
        if fails:
            raise RuntimeError("no memory for a graph")
        return lambda: out  # the graph computes nothing

    model = build("mega", seed=3).float()
    model.decoder.use_graphs = False
    expected = search(model)
    model.decoder.use_graphs = True
    monkeypatch.setattr(decoding_graph, "capture", fail)
    for _ in range(2):
        assert all(torch.equal(found, wanted) for (found, _), (wanted, _) in zip(search(model), expected))
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def watched(model: Any) -> None:
    model.decoder.layers[1].register_forward_hook(lambda *call: None)


def retained(model: Any) -> None:
    for part in model.modules():
        if isinstance(part, Dropout):
            part.retained, part.p = True, 0.1


def parametrized(model: Any) -> None:
    parametrizations.weight_norm(model.decoder.layers[0].attention.output_proj)


REFUSED: Dict[str, Any] = {
    "without chunks": ("mega", {"decoder_chunk_size": -1}, None),
    "another layer": ("llama", {}, None),
    "documents": ("mega", {"reset_at_document_ends": True}, None),
    "a window": ("megalodon", {"statistics_window": 2}, None),
    "adaptive input": ("mega", ADAPTIVE, None),
    "hooks": ("mega", {}, watched),
    "dropout": ("mega", {}, retained),
    "parametrization": ("mega", {}, parametrized),
    "compiled": ("mega", {}, lambda model: model.decoder.layers[0].compile()),
}


@pytest.mark.parametrize("case", REFUSED)
@torch.no_grad()
def test_models_without_a_graph(captured: List[Any], case: str) -> None:
    name, options, change = REFUSED[case]
    model, read = build(name, **options), tokens(2, 8)
    state = model.decoder.advance(read)[1]
    if change is not None:
        change(model)
    assert on_graph(model.decoder, CPU, 2, state) is None and not captured
    assert decoding_graph.reason_against(model.decoder) is not None


def test_calls_without_a_graph(captured: List[Any]) -> None:
    model, read = build("mega").float(), tokens(2, 8)
    with torch.no_grad():
        state = model.decoder.advance(read)[1]
        padded = read.clone()
        padded[0, :2] = PAD
        assert on_graph(model.decoder, CPU, 2, model.decoder.advance(padded[:, :4])[1]) is None
        assert on_graph(model.decoder, CPU, 2, state) is not None
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert on_graph(model.decoder, CPU, 2, state) is None
    assert on_graph(model.decoder, CPU, 2, state) is None  # gradients
    with torch.inference_mode():
        assert on_graph(model.decoder, CPU, 2, state) is None
    with torch.no_grad():
        assert on_graph(model.train().decoder, CPU, 2, state) is None
    assert decoding_graph.reason_against(model.eval().decoder) is None


@pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
@pytest.mark.parametrize("reorders", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_a_step_of_a_gpu_reads_no_value(captured: List[Any], name: str, reorders: bool) -> None:
    """On tensors without data every step launches the same kernels, and a read of a value is an error."""
    decoder = launches.on_device(build(name).float().decoder)
    with launches.on_gpu(), torch.no_grad():
        graph = DecodingGraph(decoder, 4, reorders)
        steps = []
        for _ in range(2 * CHUNK):
            with launches.Launches() as found:
                graph.replay()
            steps.append([launch.operator for launch in found.launched])
        with pytest.raises(RuntimeError):
            bool(graph.position == 0)
    assert steps.count(steps[0]) == 2 * CHUNK and any(name.startswith("fairseq_mega.") for name in steps[0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", MODELS)
def test_on_a_gpu(name: str, dtype: torch.dtype) -> None:
    """One graph continues texts as ordinary steps do."""
    model = build(name).to("cuda", dtype)
    read = tokens(3, 27).cuda()
    with torch.no_grad():
        state, stream = model.decoder.advance(read[:, :3])[1], begun(model, read[:, :3])
        for token in read[:, 3:].split(1, dim=1):
            expected, state = model.decoder.advance(token, state)
            found, same = model.decoder.advance(token, stream)
            assert same is stream and not decoding_graph._failures
            assert_close(found, expected, atol=1e-4 if dtype == torch.float32 else 0.1, rtol=0)
    if dtype == torch.float32:
        prompts = torch.tensor([[4, 5, 6], [7, 8, PAD]]).cuda()
        model.decoder.use_graphs = False
        expected = search(model, prompts=prompts)
        model.decoder.use_graphs = True
        for (found, _), (wanted, _) in zip(search(model, prompts=prompts), expected):
            assert found.tolist() == wanted.tolist()
