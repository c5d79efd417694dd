"""Shapes of the operators' measurements."""

from typing import Dict, List, NamedTuple, Tuple


class Shape(NamedTuple):
    """Batch, width, EMA dimensions and length of one measurement, and the sizes of its attention, 0 for the default."""

    batch: int
    width: int
    n: int
    length: int
    z: int = 0  # width of queries and keys; 0: half the width
    v: int = 0  # width of values; 0: twice the width
    chunk: int = 0  # of the attention, divides the length; 0: full attention

    @property
    def queries_width(self) -> int:
        return self.z or max(self.width // 2, 1)

    @property
    def values_width(self) -> int:
        return self.v or 2 * self.width

    @property
    def chunks(self) -> Tuple[int, int]:
        """Number and length of the chunks of attention."""
        length = self.chunk or self.length
        return self.batch * self.length // length, length

    @property
    def groups(self) -> int:
        """Groups of the timestep norm: 32 features each where that divides the width."""
        return self.width // 32 if self.width % 32 == 0 else 1


LM_OPS = ["ema", "attention-softmax", "timestep-norm"]
LRA_OPS = ["ema-bidirectional", "attention-laplace"]
TEXT_OPS = ["ema-bidirectional", "attention-softmax"]
# Operators and shapes. "issue": the shapes of the project's aims; "paper": MEGA's shapes and chunks, from its tables 2,
# 4, 5 and 7; "chunks" and "linear": attention and projections of the layers of the project's aims.
PRESETS: Dict[str, List[Tuple[List[str], Shape]]] = {
    "issue": [(["ema"], Shape(4, 128, 16, 4096)), (["ema"], Shape(1, 512, 16, 8192))],
    "chunks": [
        (["attention-softmax", "attention-laplace"], Shape(4, 128, 16, 4096, z=64, v=256, chunk=128)),
        (["attention-softmax", "attention-laplace"], Shape(1, 512, 16, 8192, z=128, v=1024, chunk=1024)),
    ],
    "linear": [
        (["linear"], Shape(1, 256, 1, 1200, v=832)),
        (["linear"], Shape(1, 128, 1, 16384, v=576)),
        (["linear"], Shape(1, 256, 1, 16384, v=128)),
        (["linear"], Shape(1, 512, 1, 8192, v=2176)),
    ],
    "paper": [
        (LRA_OPS, Shape(64, 160, 16, 1024, z=96, v=320)),  # Image
        (LRA_OPS, Shape(64, 128, 16, 1024, z=64, v=256, chunk=128)),  # Pathfinder
        (TEXT_OPS, Shape(16, 128, 16, 4096, z=64, v=256)),  # Text
        (TEXT_OPS, Shape(16, 128, 16, 4096, z=64, v=256, chunk=128)),
        (LRA_OPS, Shape(4, 72, 16, 16000, z=36, v=144, chunk=1000)),  # Speech Commands
        (LM_OPS, Shape(8, 512, 16, 8192, z=128, v=1024, chunk=2048)),  # enwik8
        (LM_OPS, Shape(8, 1024, 16, 8192, z=256, v=2048, chunk=1024)),  # WikiText-103
        (LM_OPS, Shape(8, 1024, 16, 8192, z=128, v=2048, chunk=4096)),
        ([*TEXT_OPS, "ema"], Shape(128, 512, 16, 64, z=128, v=1024)),  # translation
    ],
}


def parse_shapes(shape: str, lengths: str) -> List[Shape]:
    """Shapes from "B,D,N" and several lengths, or from one "B,D,N,L[,z,v,chunk]".

    Raises:
        ValueError: for anything else.
    """
    try:
        numbers = [int(number) for number in shape.split(",")]
        found = [
            Shape(*[*numbers[:3], length, *numbers[4:]])
            for length in numbers[3:4] or [int(length) for length in lengths.split(",")]
        ]
        if min(min(one[:4]) for one in found) < 1 or min(numbers) < 0:
            raise ValueError
        if any(one.chunk and one.length % one.chunk for one in found):
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(
            "give --shape B,D,N or B,D,N,L[,z,v,chunk] and --lengths a list, all at least 1, as in --shape 4,128,16; "
            "the chunk must divide the length"
        ) from None
    return found


def shrunk(shape: Shape, factor: int) -> Shape:
    """Return the shape with lengths and chunks divided by ``factor``, and one sequence; for 1 the shape itself."""
    if factor == 1:
        return shape
    chunks = shape.length // shape.chunk if shape.chunk else 1
    chunk = max(1, shape.length // factor // chunks)
    return shape._replace(batch=1, length=chunk * chunks, chunk=chunk if shape.chunk else 0)
