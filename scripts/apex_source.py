"""Build NVIDIA's apex from a folder of its sources into the environment of this Python; apex is optional.

    python scripts/apex_source.py FOLDER [PIP_OPTION...]

The script imports nothing of the package. Sources that were built before are not built again.
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Dict, List, Optional, Sequence

PARTS = ("setup.py", "csrc", "apex/normalization/fused_layer_norm.py", "apex/optimizers", "apex/multi_tensor_apply")
KERNELS = ("amp_C", "fused_layer_norm_cuda")
SOURCES = (".py", ".toml", ".cpp", ".cu", ".cuh", ".h")
STAMP = ".fairseq_mega_apex"


def check_folder(folder: Path) -> None:
    """Raise a ValueError unless a folder holds the sources of NVIDIA's apex."""
    missing = [part for part in PARTS if not (folder / part).exists()]
    if not missing:
        return
    remedy = "give the folder of a clone of https://github.com/NVIDIA/apex"
    if (folder / "setup.py").is_file() and "velruse" in (folder / "setup.py").read_text(errors="replace").lower():
        raise ValueError(f"--apex {folder} is the web toolkit apex of the Python index, not NVIDIA's: {remedy}")
    raise ValueError(f"--apex {folder} has no {missing[0]}: {remedy}")


def check_environment() -> None:
    """Raise a ValueError if the environment has the package of the same name from the Python index."""
    try:
        files = [str(file) for file in metadata.files("apex") or []]
        version = metadata.version("apex")
    except metadata.PackageNotFoundError:
        return
    if not any(name.startswith("apex/normalization/") for name in files):
        raise ValueError(
            f"apex {version} in {sys.prefix} is not NVIDIA's but the web toolkit of that name on the Python index: "
            f"remove it ({sys.executable} -m pip uninstall apex), then repeat"
        )


def fingerprint(folder: Path) -> str:
    """Return a fingerprint of torch and of all sources."""
    digest = hashlib.sha256(f"{folder.resolve()} torch {metadata.version('torch')}\n".encode())
    for path in sorted(path for path in folder.rglob("*") if path.suffix in SOURCES and path.is_file()):
        name = path.relative_to(folder)
        if name.parts[0] not in ("build", "dist"):
            digest.update(f"{name} {path.stat().st_size} {path.stat().st_mtime_ns}\n".encode())
    return digest.hexdigest()


def build_options(folder: Path) -> Dict[str, List[str]]:
    """Return the environment variables or options of pip that request the kernels, as in the README of the sources."""
    if "APEX_CUDA_EXT" in (folder / "setup.py").read_text(encoding="utf-8"):
        return {"environment": ["APEX_CPP_EXT", "APEX_CUDA_EXT"], "options": []}
    # One word, which setuptools splits: pip before 23.1 keeps only the last setting of a name.
    return {"environment": [], "options": ["--use-pep517", "--config-settings=--build-option=--cpp_ext --cuda_ext"]}


def build(folder: Path, pip_options: Sequence[str]) -> None:
    """Build and install; raise RuntimeError if the build fails or has no kernels."""
    wanted = build_options(folder)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install", *pip_options]
    # An absolute path: a bare name would be fetched from the package index.
    command = [*pip, "--no-build-isolation", "--no-cache-dir", "--force-reinstall", "--no-deps", *wanted["options"]]
    environment = {**os.environ, **dict.fromkeys(wanted["environment"], "1")}
    if subprocess.run([*command, str(folder.resolve())], env=environment).returncode != 0:
        raise RuntimeError(
            f"apex could not be built from {folder} (messages above): the build requires nvcc of the CUDA version "
            "that torch was built for. fairseq_mega does not require apex: omit --apex to install without it"
        )
    importlib.invalidate_caches()
    missing = [name for name in KERNELS if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"apex was built from {folder} without its kernels: {', '.join(missing)} cannot be found")


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; return its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    folder, stamp = Path(given[0]), Path(sys.prefix) / STAMP
    try:
        check_folder(folder)
        check_environment()
        digest = fingerprint(folder)
        if stamp.exists() and stamp.read_text().strip() == digest:
            print(f"apex of {folder} is installed already (to build it again remove {stamp})", file=sys.stderr)
            return 0
        build(folder, given[1:])
        stamp.write_text(f"{digest}\n")
    except (OSError, ValueError, RuntimeError) as error:
        print(f"setup.sh: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
