"""Average the weights of fairseq checkpoints into one that fairseq-generate loads.

python -m fairseq_mega.cli.average_checkpoints --dir checkpoints --last-epochs 5 --output averaged.pt
"""

import argparse
import sys
from pathlib import Path
from typing import Dict, Optional, Sequence

from fairseq_mega.cli.commands import failure
from fairseq_mega.models.averaging import AveragingError, average, average_of_training, last_epoch_checkpoints
from fairseq_mega.models.checkpoint_files import save


def check_paths(inputs: Sequence[Path], output: Path) -> None:
    """Raise :class:`AveragingError` if an input is passed twice or ``output`` would overwrite an input."""
    seen: Dict[Path, Path] = {}
    for path in inputs:
        real = path.resolve()
        if real in seen:
            raise AveragingError(f"--inputs names {path} twice; give every checkpoint once")
        seen[real] = path
    if output.resolve() in seen:
        raise AveragingError(f"--output {output} is one of the inputs, which are never overwritten: give another name")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="average_checkpoints", description=(__doc__ or "").split("\n\n")[0])
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--inputs", nargs="+", type=Path, metavar="FILE", help="checkpoints to average")
    which.add_argument("--last-epochs", type=int, metavar="N", help="average the last N epoch checkpoints of --dir")
    which.add_argument(
        "--ema", type=Path, metavar="FILE", help="read the average that --store-ema stored in this checkpoint"
    )
    parser.add_argument("--dir", type=Path, metavar="DIR", help="--save-dir of the training, for --last-epochs")
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help="averaged checkpoint to write")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line and return the exit status: 0, or 1 after an error message."""
    args = build_parser().parse_args(argv)
    try:
        if (args.last_epochs is None) != (args.dir is None):
            raise AveragingError("--last-epochs and --dir, the --save-dir of the training: give both, or neither")
        if args.ema is not None:
            check_paths([args.ema], args.output)
            save(average_of_training(args.ema), args.output)
            print(f"average of --store-ema in {args.ema} written to {args.output}")
            return 0
        paths = args.inputs or last_epoch_checkpoints(args.dir, args.last_epochs)
        check_paths(paths, args.output)
        for path in paths:
            print(f"averaging {path}", flush=True)
        save(average(paths), args.output)
    except (OSError, ValueError) as error:
        return failure("average_checkpoints", error)
    print(f"average of {len(paths)} checkpoints written to {args.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
