"""Cases of the EMA's coefficients, and of their gradients."""

import math
from typing import Iterator

import torch

from tests.simulator.cases.case import Case, Results, exact, normal, ops, with_gradients


def cases() -> Iterator[Case]:
    for rows, n, is_complex in (
        (1, 1, False),
        (5, 16, False),
        (300, 3, False),
        (1, 1, True),
        (70, 40, True),
        (9, 4, True),
    ):
        yield coefficients_case(rows, n, is_complex)


def coefficients_case(rows: int, n: int, is_complex: bool) -> Case:
    """The coefficients of a row of slow and of a row of fast decays, and others; and their gradients."""
    parts = (2,) if is_complex else ()
    learned = {"alpha": 3 * normal(1, rows, n), "delta": 3 * normal(2, rows, n)}
    learned["alpha"][0], learned["delta"][0], learned["alpha"][-1] = -20.0, 20.0, 20.0
    learned.update(beta=normal(3, rows, 1 if is_complex else n), eta=normal(4, rows, n, *parts))
    grads = {"log decay": normal(5, rows, n, *parts), "expansion": normal(6, rows, n)}
    grads["projection"] = normal(7, rows, n, *parts)
    leaves = exact(learned)
    opened, closed = leaves["alpha"].sigmoid(), torch.sigmoid(-leaves["alpha"])
    log_decay = torch.log(closed + opened * torch.sigmoid(-leaves["delta"]))
    slow = torch.log1p(-opened * leaves["delta"].sigmoid())
    log_decay = torch.where(opened * leaves["delta"].sigmoid() < 0.5, slow, log_decay)
    if is_complex:
        angle = torch.arange(1, n + 1) * 2 * math.pi / n * leaves["beta"].sigmoid()
        log_decay = torch.stack([log_decay, angle], -1)
    made = {"log decay": log_decay, "expansion": opened if is_complex else opened * leaves["beta"]}
    wanted = with_gradients({**made, "projection": leaves["eta"] / math.sqrt(n)}, grads, leaves)
    slowest = log_decay.detach()[0, 0] if not is_complex else log_decay.detach()[0, 0, 0]
    wanted["slowest decay, scaled"] = (slowest / slowest)[None]  # its digits, which are those of a number near 2e-9

    def run() -> Results:
        made = dict(zip(grads, ops().ema_coefficients(*learned.values())))
        found = ops().ema_coefficients_backward(*grads.values(), *learned.values())
        slow = made["log decay"].flatten()[:1].double() / slowest
        named = {f"gradient of {name}": value for name, value in zip(learned, found)}
        return {**made, **named, "slowest decay, scaled": slow}

    return Case(f"EMA coefficients ({rows}, {n}) complex {is_complex}", run, wanted)
