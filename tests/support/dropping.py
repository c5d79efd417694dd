"""Random numbers by which the kernels drop, in Python's integers (see csrc/common/random.h)."""

import torch

GOLDEN, WIDE, NARROW = 0x9E3779B97F4A7C15, (1 << 64) - 1, (1 << 32) - 1
HASHES = 1 << 24


def mix(x: int) -> int:
    """The finaliser of SplitMix64."""
    x &= WIDE
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & WIDE
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & WIDE
    return x ^ (x >> 31)


def hash_of(seed: int, row: int, column: int) -> int:
    """A number below HASHES."""
    bits = mix(seed + GOLDEN * (row + 1))
    x = (column * 0x9E3779B1 + (bits & NARROW)) & NARROW
    x = ((x ^ (x >> 16)) * 0x7FEB352D + (bits >> 32)) & NARROW
    x = (x ^ (x >> 15)) * 0x846CA68B & NARROW
    return (x ^ (x >> 16)) >> 8


def kept(seed: torch.Tensor, shape: torch.Size, p: float) -> torch.Tensor:
    """True for each element of (..., D) that is kept."""
    columns = shape[-1] if shape else 1
    rows, limit = shape.numel() // max(columns, 1), round(p * HASHES)
    hashes = [[hash_of(int(seed), row, column) >= limit for column in range(columns)] for row in range(rows)]
    return torch.tensor(hashes, dtype=torch.bool).view(shape)


def next_seed(device: object = "cpu") -> torch.Tensor:
    """The seed that the next call draws; the generators are left as they were."""
    with torch.random.fork_rng():
        return torch.randint(1 << 62, (), dtype=torch.int64, device=str(device))
