"""Fast checks of the CUDA kernels in the simulator, against formulas written out in float64.

    python -m tests.simulator.check_operators OPERATOR LIBRARY ORDER...

runs every case of one operator under the schedules ORDER (see cuda_sim.h); prints what is wrong and then exits with 1.
Under another schedule than the first the results must be the same to the last bit. Imports nothing of the package, so
that it starts quickly and also under AddressSanitizer.
"""

import itertools
import os
import sys
from typing import Callable, Dict, Iterable, Iterator, List, Optional

import torch

from tests.simulator.cases import attention, coefficients, ema, fft_conv, gate, rows, timestep_norm
from tests.simulator.cases.case import Case, Results, compare

CASES: Dict[str, Callable[[], Iterator[Case]]] = {
    "activation": rows.silu_cases,
    "attention": attention.cases,
    "ema": lambda: itertools.chain(ema.cases(), coefficients.cases()),
    "fft_conv": fft_conv.cases,
    "gate": gate.cases,
    "linear": rows.linear_cases,
    "norm": lambda: itertools.chain(rows.norm_cases(), gate.norm_cases()),
    "query_key": rows.query_key_cases,
    "rotary": rows.rotary_cases,
    "timestep_norm": timestep_norm.cases,
}


def failures(cases: Iterable[Case], orders: List[str]) -> List[str]:
    """Run cases on the library that is loaded; returns what is wrong with the first that is."""
    torch.use_deterministic_algorithms(True)  # fills memory that the operators allocate with NaN
    wrong: List[str] = []
    for case in cases:
        first: Optional[Results] = None
        for order in orders:
            os.environ["FM_SIM_ORDER"] = order
            found = case.run()
            if first is None:
                wrong += compare(case, found)
                first = found
            for name, tensor in found.items():
                if not torch.equal(tensor, first[name]) and not wrong:
                    wrong.append(f"{case.title}, schedule {order}: {name} differs from schedule {orders[0]}")
        if wrong:
            break
    os.environ.pop("FM_SIM_ORDER", None)
    torch.use_deterministic_algorithms(False)
    return wrong


if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.ops.load_library(sys.argv[2])
    problems = failures(CASES[sys.argv[1]](), sys.argv[3:] or ["0"])
    print("\n".join(problems))
    sys.exit(1 if problems else 0)
