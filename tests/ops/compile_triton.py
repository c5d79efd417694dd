"""Compile the kernels of the attention in Triton without a GPU, and print what each of them needs of one.

    python tests/ops/compile_triton.py CAPABILITY [Z [WIDTH]]

A row has kernel, function, registers of a thread, bytes that a thread keeps in memory, bytes of shared memory.
CAPABILITY is 80 or 90. TRITON_INTERPRET must not be 1.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Tuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fairseq_mega.ops.attention import FUNCTIONS, triton_kernels
from fairseq_mega.ops.attention.triton_flash import blocks_for

TYPES = {
    **dict.fromkeys(("statistics", "means", "diagonals", "bias", "grad_bias"), "*fp32"),
    "padding": "*u8",
    "counts": "*i32",
    "seed": "*i64",
    "scale": "fp32",
    "kept": "fp32",
    **dict.fromkeys(("groups", "programs", "stride", "queries", "keys", "z", "width", "drop_key", "drop"), "i32"),
}
KERNELS = ("forward", "queries_gradient", "keys_gradient")


def needs(kernel: str, function: str, capability: int, z: int, width: int) -> Tuple[int, int, int]:
    """Return registers, stack and shared memory of a causal kernel with all of its options, in bfloat16."""
    source = getattr(triton_kernels, kernel)
    rows, columns, warps, stages = blocks_for(kernel, torch.bfloat16)
    constants = {"FUNCTION": function, "CAUSAL": True, "OWN_SCALE": function != "softmax", "WHOLE": True}
    constants.update(ROWS=rows, COLUMNS=columns, Z=z, WIDTH=width)
    signature = {name: "constexpr" if name in constants else TYPES.get(name, "*bf16") for name in source.arg_names}
    multiples = {
        (index,): [["tt.divisibility", 16]]
        for index, (name, kind) in enumerate(signature.items())
        if kind.startswith("*") or name in ("queries", "keys", "z", "width", "stride")
    }
    options = {"num_warps": warps, "num_stages": stages}
    made: Any = triton.compile(
        ASTSource(source, signature, constants, multiples), target=GPUTarget("cuda", capability, 32), options=options
    )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        usage = subprocess.run([tool, "-res-usage", file.name], check=True, capture_output=True, text=True).stdout
    registers, stack = (int(number) for number in re.findall(r"(?:REG|STACK):(\d+)", usage))
    return registers, stack, made.metadata.shared


if __name__ == "__main__":
    capability, z, width = (*map(int, sys.argv[1:]), *(128, 256)[len(sys.argv) - 2 :])
    for kernel in KERNELS:
        for function in FUNCTIONS:
            print(kernel, function, *needs(kernel, function, capability, z, width), flush=True)
