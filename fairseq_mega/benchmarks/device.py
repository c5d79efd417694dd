"""What the measurements of scripts/gpu_check.sh ran on, as a JSON file.

python -m fairseq_mega.benchmarks.device gpu.json
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

import torch


def describe(device: str) -> Dict[str, Any]:
    """The GPU (with ``device`` "cpu": none), and the versions of torch, CUDA and Python.

    Raises:
        SystemExit: where torch sees no GPU.
    """
    found: Dict[str, Any] = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": sys.version.split()[0],
    }
    if device == "cpu":
        return {"gpu": None, **found}
    if not torch.cuda.is_available():
        sys.exit("torch sees no CUDA device: install a torch built for CUDA, or check the driver with nvidia-smi")
    gpu = torch.cuda.get_device_properties(0)
    return {
        "gpu": gpu.name,
        "capability": f"{gpu.major}.{gpu.minor}",
        "memory_gib": round(gpu.total_memory / 2**30, 1),
        "multiprocessors": gpu.multi_processor_count,
        **found,
    }


def main(arguments: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("output", type=Path, help="file to write")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda", help="cpu: leave the GPU out")
    parsed = parser.parse_args(arguments)
    text = json.dumps(describe(parsed.device), indent=2)
    parsed.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
