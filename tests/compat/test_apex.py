"""NVIDIA's apex under fairseq's Adam, by a stand-in of its interface."""

import os
from pathlib import Path
from typing import Callable, Dict, Iterator

import pytest

from tests.support import helpers
from tests.support.prepared import PreparedPython

STAND_IN = helpers.REPOSITORY / "tests" / "apex_stand_in"

# The stand-in is found when fairseq is imported, hence a process of its own; its "GPU" is the CPU.
PRELUDE = """
import contextlib, torch
torch.cuda.is_available = lambda: True
torch.cuda.device = lambda device: contextlib.nullcontext()
import fairseq_mega
from argparse import Namespace
from fairseq.optim.adam import FairseqAdam, Adam
from fairseq_mega.compat.versions import apex

cfg = Namespace(lr=[0.1], adam_betas="(0.9, 0.98)", adam_eps=1e-8, weight_decay=0.1, use_old_adam=False,
    fp16_adam_stats=False, tpu=False)

def build(fused, start=None, dtype=torch.float32, **options):
    generator = torch.Generator().manual_seed(3)
    params = [torch.randn(4, 3, generator=generator), torch.randn(5, generator=generator)]
    params = [torch.nn.Parameter(value.to(dtype)) for value in (params if start is None else start)]
    if fused:
        apex.can_fuse = lambda params: True
    return params, FairseqAdam(Namespace(**{**vars(cfg), **options}), params)

def steps(params, optimizer, numbers):
    for number in numbers:
        for parameter in params:
            parameter.grad = torch.full_like(parameter, 0.5 - 0.2 * number) + 0.1 * parameter.detach()
        optimizer.step()
    return [parameter.detach().clone() for parameter in params]
"""


def environment(path: Path) -> Dict[str, str]:
    """Return an environment in which imports search a folder first."""
    folders = [str(path), str(helpers.REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders), "PYTHONWARNINGS": "ignore"}


@pytest.fixture(scope="module")
def with_apex() -> Iterator[Callable[[str], None]]:
    """Yield a function that runs a program after the prelude, beside the stand-in, and asserts that it succeeds."""
    with PreparedPython(PRELUDE, environment(STAND_IN)) as prepared:

        def run(program: str) -> None:
            done = prepared.run(program)
            assert done.returncode == 0, done.output

        yield run


def test_adam_takes_fused_adam(with_apex: Callable[[str], None]) -> None:
    program = """
import amp_C
params, fused = build(True)
assert type(fused.optimizer).__name__ == "FusedAdamV2", fused.optimizer
got = steps(params, fused, range(4))
assert amp_C.USED == [2] * 4
want = steps(*build(True, use_old_adam=True), range(4))
torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
"""
    with_apex(program)


def test_adam_where_fused_adam_cannot_step(with_apex: Callable[[str], None]) -> None:
    """Plain Adam steps with --cpu beside a GPU."""
    program = """
params, plain = build(False)
assert type(plain.optimizer) is Adam, plain.optimizer
steps(params, plain, range(2))
"""
    with_apex(program)


@pytest.mark.parametrize("first, second", [(True, False), (False, True)])
def test_each_goes_on_from_the_other(first: bool, second: bool, with_apex: Callable[[str], None]) -> None:
    """A training that is resumed with or without apex goes on as if nothing had changed."""
    program = f"""
import copy
old = {{True: {{}}, False: {{"use_old_adam": True}}}}
params, begun = build(True, **old[{first}])
half = steps(params, begun, range(3))
state = copy.deepcopy(begun.state_dict())
_, resumed = pair = build(True, half, **old[{second}])
resumed.load_state_dict(state)
got = steps(*pair, range(3, 6))
torch.testing.assert_close(got, steps(params, begun, range(3, 6)), rtol=1e-5, atol=1e-6)
"""
    with_apex(program)


def test_fused_adam_with_decay_of_some_parameters(with_apex: Callable[[str], None]) -> None:
    """Steps are those without apex, and each Adam goes on from the other's checkpoint."""
    program = """
import copy
from fairseq_mega.compat.features.no_weight_decay import exclude_from_weight_decay
from fairseq_mega.optim.adam_selective_decay import SelectiveDecayAdam
ends = []
for old in (False, True):
    params, _ = build(True)
    exclude_from_weight_decay(params[0])
    chosen = [Namespace(**{**vars(cfg), "use_old_adam": which}) for which in (old, not old)]
    begun, other = (SelectiveDecayAdam(options, params) for options in chosen)
    assert [type(built.optimizer).__name__ == "FusedAdamV2" for built in (begun, other)] == [not old, old]
    assert [group["weight_decay"] for group in begun.param_groups] == [0.1, 0.0]
    steps(params, begun, range(3))
    other.load_state_dict(copy.deepcopy(begun.state_dict()))
    ends.append(steps(params, other, range(3, 6)))
torch.testing.assert_close(*ends, rtol=1e-5, atol=1e-6)
plain = steps(*build(True), range(6))
assert (ends[0][0] - plain[0]).abs().max() > 0.01 and torch.allclose(ends[0][1], plain[1], rtol=1e-5, atol=1e-6)
"""
    with_apex(program)
