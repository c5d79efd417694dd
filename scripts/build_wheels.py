"""Build wheels of fairseq_mega, and record the requirements of each.

    python scripts/build_wheels.py --out dist                    # for the CPU, and for CUDA where nvcc is found
    python scripts/build_wheels.py --out dist --kinds cpu cuda   # both, or an error

Each kind has a folder, because the wheels have the same name: their contents differ, not their platforms. The kernels
are built against the torch of this Python and run with any later torch. dist/wheels.json and dist/WHEELS.md list for
each wheel its contents and requirements: Python, packages, the C library, compute capabilities.
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("none", "cpu", "cuda")
SOURCES = ("fairseq_mega", "setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md")
CONTENTS = {"none": "PyTorch alone", "cpu": "kernels for the CPU", "cuda": "kernels for the CPU and for CUDA"}


def found_nvcc() -> Optional[str]:
    """Return nvcc of the CUDA toolkit that setup.py would use, or None."""
    homes = (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")
    known = [str(Path(home) / "bin" / "nvcc") for home in homes if home and (Path(home) / "bin" / "nvcc").is_file()]
    return known[0] if known else shutil.which("nvcc")


def build(kind: str, out: Path) -> Path:
    """Build the wheel of a kind in a separate folder within ``out``; return the file.

    Raises:
        ValueError: with the end of the build's output, if the build fails.
    """
    folder = out / kind
    with tempfile.TemporaryDirectory() as scratch:
        sources, built = Path(scratch) / "sources", Path(scratch) / "wheel"
        sources.mkdir()
        for name in SOURCES:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, sources / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
            else:
                shutil.copy(ROOT / name, sources)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--no-build-isolation"]
        environment = {**os.environ, "FAIRSEQ_MEGA_BUILD": kind}
        environment.pop("FORCE_CUDA", None)
        command = [*pip, "--wheel-dir", str(built), str(sources)]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            raise ValueError(f"the wheel of kind {kind} could not be built:\n{done.stdout[-3000:]}")
        (wheel,) = built.glob("*.whl")
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.whl"):
            old.unlink()
        return Path(shutil.copy(wheel, folder / wheel.name))


def described(kind: str, wheel: Path) -> Dict[str, Any]:
    """Return what a wheel contains and requires, by name."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        needs = Parser().parsestr(archive.read(metadata).decode())
        libraries = [name for name in archive.namelist() if name.endswith(".so")]
        library = archive.read(libraries[0]) if libraries else b""
    tags = wheel.name[: -len(".whl")].split("-")[2:]
    return {
        "kind": kind,
        "contains": CONTENTS[kind],
        "file": f"{wheel.parent.name}/{wheel.name}",
        "version": needs["Version"],
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "bytes": wheel.stat().st_size,
        "platform": tags[-1],
        "python": needs["Requires-Python"],
        "packages": [line for line in needs.get_all("Requires-Dist") or [] if "extra ==" not in line],
        "glibc": newest_glibc(library) if library else None,
        "built with": built_with(kind),
    }


def newest_glibc(library: bytes) -> Optional[str]:
    """Return the oldest version of the GNU C library that a shared library runs with, None if it names no version."""
    versions = {tuple(map(int, found.split(b"."))) for found in re.findall(rb"GLIBC_(\d+\.\d+(?:\.\d+)?)\0", library)}
    return ".".join(map(str, max(versions))) if versions else None


def built_with(kind: str) -> Dict[str, str]:
    """Return the versions of the programs that built a wheel."""
    versions = {"python": sys.version.split()[0]}
    if kind == "none":
        return versions
    torch = [sys.executable, "-c", "import torch; print(torch.__version__)"]
    compiler = [*os.environ.get("CXX", "g++").split(), "--version"]
    commands = {"torch": torch, "compiler": compiler}
    nvcc = found_nvcc()
    if kind == "cuda" and nvcc is not None:
        commands["nvcc"] = [nvcc, "--version"]
        versions["compute capabilities"] = os.environ.get("TORCH_CUDA_ARCH_LIST", "those that setup.py names")
    for name, command in commands.items():
        lines = subprocess.run(command, capture_output=True, text=True).stdout.strip().splitlines() or ["unknown"]
        versions[name] = lines[-1] if name == "nvcc" else lines[0]
    return versions


def page(wheels: Sequence[Dict[str, Any]]) -> str:
    """Return the requirements of the wheels as Markdown."""
    lines = ["# Wheels of fairseq_mega", ""]
    for wheel in wheels:
        lines += [
            f"## {wheel['file']}",
            "",
            f"Contains {wheel['contains']}. Install: `pip install {wheel['file']}`",
            "",
        ]
        facts = {"platform": wheel["platform"], "Python": wheel["python"], "C library": wheel["glibc"] or "any"}
        facts.update({f"built with {name}": value for name, value in wheel["built with"].items()})
        facts["SHA-256"] = wheel["sha256"]
        lines += ["| needs | |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts.items())]
        lines += [f"| package | `{package}` |" for package in wheel["packages"]] + [""]
    return "\n".join(lines)


def main(given: Optional[List[str]] = None) -> int:
    """Build the requested wheels; return the exit status, 1 after an error message."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form, allow_abbrev=False)
    parser.add_argument("--out", type=Path, required=True, help="folder for the wheels and their descriptions")
    parser.add_argument(
        "--kinds", nargs="+", choices=KINDS, help="kinds of wheels (default: cpu, and cuda where nvcc is found)"
    )
    options = parser.parse_args(given)
    nvcc = found_nvcc()
    kinds = options.kinds or ["cpu", *(["cuda"] if nvcc else [])]
    if "cuda" in kinds and nvcc is None:
        parser.error(
            "--kinds cuda: nvcc is not found; set CUDA_HOME to the folder of the CUDA toolkit, or leave cuda out"
        )
    wheels = []
    try:
        for kind in dict.fromkeys(kinds):
            print(f"building the wheel with {CONTENTS[kind]}", flush=True)
            wheels.append(described(kind, build(kind, options.out)))
    except (OSError, ValueError) as error:
        print(f"build_wheels: error: {error}", file=sys.stderr)
        return 1
    (options.out / "wheels.json").write_text(json.dumps(wheels, indent=1) + "\n")
    (options.out / "WHEELS.md").write_text(page(wheels))
    for wheel in wheels:
        print(f"{options.out / wheel['file']}  {wheel['bytes'] / 2**20:.1f} MiB")
    print(f"requirements: {options.out / 'WHEELS.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
