"""Parameters shared out among processes: losses, gradients, updates and checkpoints are those of one process."""

import copy
from typing import Any, Dict

import pytest
import torch
import torch.distributed.fsdp as fsdp
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh

from fairseq_mega.compat.features.sharding import Shard, ShardedModel, converted, is_shared
from tests.support import tiny_llama, tiny_lm, tiny_megalodon
from tests.support.numerics import assert_close
from tests.support.processes import run_group

BUILD: Dict[str, Any] = {"mega": tiny_lm.build, "megalodon": tiny_megalodon.build, "llama": tiny_llama.build}
CASES = [
    ("mega", {}),
    ("mega", tiny_lm.ADAPTIVE),
    ("megalodon", {"checkpoint_activations": True}),
    ("megalodon", {"layer_scale": True, "share_decoder_input_output_embed": False}),
    ("llama", {"checkpoint_activations": True}),
]
UPDATES = 3


def build(kind, options):
    model = BUILD[kind](dropout=0.0, **options).double().train()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def loss_of(model, replica, update):
    tokens = tiny_lm.tokens(2, 23, seed=10 * update + replica)
    out = model(tokens)[0]
    if model.decoder.adaptive_softmax is None:
        return F.cross_entropy(out[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="sum")
    logits, targets = model.decoder.adaptive_softmax(out[:, :-1].contiguous(), tokens[:, 1:].contiguous())
    pairs = [(part, target) for part, target in zip(logits, targets) if part is not None]
    return sum(F.cross_entropy(part, target, reduction="sum") for part, target in pairs)


def train(model, replicas, optimizer=None):
    """Losses, mean gradients and weights after each of some updates; evaluation in between."""
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=0.01)
    found: Dict[str, Any] = {}
    for update in range(UPDATES):
        optimizer.zero_grad()
        for replica in replicas:
            loss = loss_of(model, replica, update)
            (loss / len(replicas)).backward()
            found[f"loss {update} of {replica}"] = loss.detach()
        if isinstance(model, ShardedModel):
            model.all_reduce_grads()
        for name, parameter in model.named_parameters():
            gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            found[f"gradient {update} of {name}"] = gather(parameter, gradient)
        optimizer.step()
        with torch.no_grad():
            loss_of(model.eval(), 0, update)
        model.train()
    found.update({f"weight {name}": weight.clone() for name, weight in model.state_dict().items()})
    return found, optimizer


def gather(parameter, part):
    return parameter.whole_of(part) if isinstance(parameter, Shard) else part.clone()


def share_out(rank):
    """Train each case in all processes, assert that a checkpoint restores the training, and return the results."""
    results = []
    mesh = init_device_mesh("cpu", (2,))
    for kind, options in CASES:
        model = ShardedModel(build(kind, options), mesh)
        found, optimizer = train(model, [rank])
        shards: Any = list(model.parameters())
        assert 0.45 < sum(shard.numel() for shard in shards) / sum(shard.whole.numel() for shard in shards) < 0.6
        saved = copy.deepcopy(converted(optimizer.state_dict(), shards, Shard.whole_of))
        weights = model.state_dict()
        again = ShardedModel(build(kind, options), mesh)
        loss_of(again.eval(), 0, 0)  # what it gathered must not stay
        key = next(name for name, tensor in model.module.state_dict().items() if is_shared(tensor))
        with pytest.raises(RuntimeError, match="size mismatch"):  # its first rows would fit
            again.load_state_dict({**weights, key: torch.cat([weights[key], weights[key]])})
        again.train().load_state_dict(weights)
        other = torch.optim.Adam(again.parameters(), lr=0.01)
        mine: Any = list(again.parameters())
        other.load_state_dict(converted(copy.deepcopy(saved), mine, Shard.part_of))
        goes_on = train(model, [rank], optimizer)[0]
        for name, value in train(again, [rank], other)[0].items():
            assert torch.equal(value, goes_on[name]), name
        results.append({"found": found, "state": saved["state"]})
    return results


@pytest.mark.skipif(not hasattr(fsdp, "fully_shard"), reason="fully_shard needs torch 2.6")
def test_two_processes_find_what_one_does(tmp_path):
    first, second = run_group(share_out, 2, tmp_path)
    for (kind, options), one, two in zip(CASES, first, second):
        model = build(kind, options)
        expected, optimizer = train(model, [0, 1])
        for update in range(UPDATES):
            name = f"loss {update} of 1"
            assert_close(name, two["found"].pop(name), expected.pop(name))
        for name, value in expected.items():
            assert_close(f"{name} of {kind}", one["found"][name].double(), value.double())
        for number, state in optimizer.state_dict()["state"].items():
            for name, value in state.items():
                found = torch.as_tensor(one["state"][number][name])
                assert_close(f"{name} of {number}", found.double(), value.double())
