"""The wheel: what it holds, and that it works away from the checkout."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Callable, Dict, List

import fairseq
import pytest

from fairseq_mega.ops.common import native
from tests.support import helpers

SOURCES = ("setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md")


def run(*command: object, cwd: Path, path: Path, **variables: str) -> str:
    """Run a program with `path` as its only extra import folder, and environment variables; returns stdout."""
    environment = {**os.environ, "PYTHONPATH": str(path), "PYTHONWARNINGS": "ignore", **variables}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, so that no build folder is left in the checkout."""
    sources = tmp_path_factory.mktemp("sources")
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    shutil.copytree(helpers.REPOSITORY / "fairseq_mega", sources / "fairseq_mega", ignore=ignore)
    for name in SOURCES:
        if (helpers.REPOSITORY / name).exists():
            shutil.copy(helpers.REPOSITORY / name, sources)
    return sources


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with the extension for the CPU, where this run of the tests uses one."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"]
    build = "none" if native.PROBLEM else "cpu"
    command = [*pip, "--no-deps", "--no-build-isolation", "--wheel-dir", folder, sources]
    run(*command, cwd=folder, path=folder, FAIRSEQ_MEGA_BUILD=build)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages with the wheel and, beside it as in any environment, fairseq."""
    folder = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run(*pip, "--no-deps", "--no-index", "--target", folder, wheel, cwd=folder, path=folder)
    installed = Path(next(iter(fairseq.__path__))).parent
    for name in ("fairseq", "fairseq_cli"):
        shutil.copytree(installed / name, folder / name, ignore=shutil.ignore_patterns("examples"))
    return folder


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert {name.split("/")[0] for name in names} == {"fairseq_mega"}
    ours = (helpers.REPOSITORY / "fairseq_mega").rglob("*.*")
    files = {path.relative_to(helpers.REPOSITORY).as_posix() for path in ours if path.suffix not in (".pyc", ".so")}
    assert files <= names, files - names


PROGRAM = """
from fairseq_mega.lab.recipes.catalogue import find
from fairseq_mega.models import presets
from fairseq_mega.ops.common import native
print(native.LIBRARY, presets.FOLDER, presets.preset("mega_tiny")["decoder_layers"])
print(find("mega/table2/text/mega")[0].preset)
"""


def test_the_wheel_has_its_extension_presets_and_recipes(wheel: Path, site: Path, tmp_path: Path) -> None:
    if native.PROBLEM:
        pytest.skip(f"no compiled kernels: {native.PROBLEM}")
    assert "-py3-none-" in wheel.name and not wheel.name.endswith("-any.whl")
    printed = run(sys.executable, "-B", "-c", PROGRAM, cwd=tmp_path, path=site, FAIRSEQ_MEGA_NATIVE="require")
    installed = site / "fairseq_mega"
    assert printed.split() == [
        *(str(installed / "_C.so"), str(installed / "presets" / "model"), "2"),
        "mega_lra_imdb",
    ]
    assert (installed / "lab" / "recipes" / "model" / "mega_lra_imdb.yaml").is_file()


@pytest.mark.parametrize(("build", "fails"), [("auto", False), ("cpu", True), ("gpu", True)])
def test_without_a_compiler(build: str, fails: bool, sources: Path, tmp_path: Path) -> None:
    """Pure PyTorch serves, unless kernels were requested."""
    missing = {"CC": "/nonexistent", "CXX": "/nonexistent", "FAIRSEQ_MEGA_BUILD": build}
    folders = ["--build-lib", str(tmp_path), "--build-temp", str(tmp_path / "temp")]
    command = [sys.executable, "setup.py", "build_ext", *folders]
    done = subprocess.run(command, cwd=sources, env={**os.environ, **missing}, capture_output=True, text=True)
    assert (done.returncode != 0) == fails, done.stderr
    assert not list(tmp_path.rglob("_C.so"))


# A compiler and linker that notes its arguments and leaves an empty file for what it was to make. Not in Python: the
# first line of a script cannot name an interpreter in a folder with a space.
NOTING_COMPILER = """#!/bin/sh
echo "$0 $*" >>{log}
while [ $# -gt 1 ]; do
  if [ "$1" = -o ]; then : >"$2"; fi
  shift
done
"""


@pytest.fixture
def noted(sources: Path, tmp_path: Path) -> Callable[..., List[str]]:
    """Builds with such compilers and returns the lines that they noted; a build folder is kept from call to call."""
    toolkit, log = tmp_path / "toolkit", tmp_path / "log"
    (toolkit / "bin").mkdir(parents=True)
    for compiler in (toolkit / "bin" / "nvcc", tmp_path / "cxx"):
        compiler.write_text(NOTING_COMPILER.format(log=shlex.quote(str(log))))
        compiler.chmod(0o755)

    def build(folder: Path = sources, **variables: str) -> List[str]:
        log.write_text("")
        folders = ["--build-lib", str(tmp_path), "--build-temp", str(tmp_path / f"temp-{folder.name}")]
        tools = {"CC": str(tmp_path / "cxx"), "CXX": str(tmp_path / "cxx"), "CUDA_HOME": str(toolkit)}
        usual = {"TORCH_CUDA_ARCH_LIST": "", "FORCE_CUDA": "0", "FAIRSEQ_MEGA_OBJECTS": "", **tools, **variables}
        printed = run(sys.executable, "setup.py", "build_ext", *folders, cwd=folder, path=folder, **usual)
        assert re.search(r"^compiled (\d+) of \1: ", printed, re.M)
        return log.read_text().splitlines()

    return build


def test_later_gpus_get_the_code_of_the_oldest(noted: Callable[..., List[str]]) -> None:
    for listed, flags, oldest in (
        ("", "-gencode=arch=compute_80,code=[sm_80,sm_90,compute_80]", 80),
        ("9.0 7.5+PTX", "-gencode=arch=compute_75,code=[sm_90,sm_75,compute_75]", 75),
        ("8.6;9.0;9.0a+PTX", "-gencode=arch=compute_86,code=[sm_86,sm_90,compute_86]", 86),
    ):
        lines = noted(FORCE_CUDA="1", TORCH_CUDA_ARCH_LIST=listed)
        kernels = [line for line in lines if ".cu " in line]
        assert len(kernels) == len(list((helpers.REPOSITORY / "fairseq_mega" / "csrc").rglob("*.cu")))
        assert all(flags in line for line in kernels), kernels[0]
        (bindings,) = (line for line in lines if "common/library.cpp" in line)
        assert f"-DFM_CUDA_ARCHITECTURE={oldest} " in bindings


def test_what_is_built_follows_the_options(noted: Callable[..., List[str]]) -> None:
    assert not any(".cu " in line for line in noted(FAIRSEQ_MEGA_BUILD="cpu"))
    first = noted(FORCE_CUDA="1", TORCH_CUDA_ARCH_LIST="8.0")
    assert any("-DFM_WITH_CUDA=1" in line and "bindings.cpp" in line for line in first)
    assert any(".cu " in line for line in first)
    (link,) = noted(FORCE_CUDA="1", TORCH_CUDA_ARCH_LIST="8.0")  # all that is left to do
    assert "-shared" in link and "-lcudart_static" in link
    (link,) = noted(FAIRSEQ_MEGA_BUILD="cpu")
    assert "-lcudart_static" not in link


def test_objects_serve_later_builds(noted: Callable[..., List[str]], sources: Path, tmp_path: Path) -> None:
    """Only objects that depend on a changed compiler, option or source are compiled again."""

    def compiled(folder: Path = sources, **variables: str) -> List[str]:
        *lines, link = noted(folder, FAIRSEQ_MEGA_OBJECTS=str(tmp_path / "kept"), **variables)
        assert "-shared" in link
        return sorted(re.sub(r".* -c fairseq_mega/csrc/(\S+) .*", r"\1", line) for line in lines)

    all_of_cpu = compiled(FAIRSEQ_MEGA_BUILD="cpu")
    other = shutil.copytree(sources, tmp_path / "other")
    csrc = other / "fairseq_mega" / "csrc"
    assert all_of_cpu == sorted(path.relative_to(csrc).as_posix() for path in csrc.rglob("*.cpp"))
    assert compiled(other, FAIRSEQ_MEGA_BUILD="cpu") == []
    headers = [path.relative_to(csrc).as_posix() for path in csrc.rglob("*.h") if "FM_WITH_CUDA" in path.read_text()]
    words = ("FM_WITH_CUDA", *(f'#include "{header}"' for header in headers))
    sources_in_cpp = {path.relative_to(csrc).as_posix(): path.read_text() for path in csrc.rglob("*.cpp")}
    asking = {name for name, text in sources_in_cpp.items() if any(word in text for word in words)}
    with_cuda = compiled(other, FORCE_CUDA="1")
    assert len(asking) > 3 and {path for path in with_cuda if path.endswith(".cpp")} == asking
    library = "common/library.cpp"  # it knows its sources' hash
    users = ("bindings", "cpu")
    names = ("cpu_backward", "cpu_bindings", "cpu_forward")  # some by cpu_blocks.h
    for changed, expected in (
        (csrc / "gate" / "cpu.cpp", [library, "gate/cpu.cpp"]),
        (csrc / "gate" / "gate.h", [library, *(f"{part}/{name}.cpp" for part in ("gate", "norm") for name in users)]),
        (csrc / "attention" / "blocks.h", [*(f"attention/{name}.cpp" for name in names), library]),
        (tmp_path / "cxx", all_of_cpu),
    ):
        with changed.open("a") as file:
            file.write("\n")
        assert compiled(other, FAIRSEQ_MEGA_BUILD="cpu") == expected, changed


def test_pinned_versions_are_within_the_ranges() -> None:
    from packaging.requirements import Requirement

    pins: Dict[str, str] = {}
    for line in (helpers.REPOSITORY / "scripts" / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, version = line.split("==")
            assert re.fullmatch(r"[\d.]+(post\d+)?", version), f"{line}: a local or vague version"
            pins[name.lower().replace("_", "-")] = version
    text = (helpers.REPOSITORY / "setup.py").read_text()
    found = [Requirement(entry) for entry in re.findall(r"""['"]([\w-]+>=[^'"]*(?:"[^"]*")?)['"]""", text)]
    requirements = [entry for entry in found if entry.name not in ("fairseq", "setuptools")]
    assert len(requirements) > 8, requirements
    for requirement in requirements:
        assert requirement.specifier.contains(pins[requirement.name.lower()]), requirement


@pytest.mark.slow
def test_user_dir_by_name_from_any_folder(site: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "fairseq_cli.train", "--user-dir", "fairseq_mega", "--help"]
    assert "linear_decay" in run(*program, cwd=tmp_path, path=site)  # a choice of --lr-scheduler


@pytest.mark.slow
def test_commands_from_any_folder(site: Path, tiny_model, tmp_path: Path) -> None:
    commands = ("train", "generate", "interactive", "eval-lm", "validate", "prepare", "classify", "convert", "inspect")
    scripts = [site / "bin" / f"fairseq-mega-{command}" for command in commands]
    assert all(script.exists() for script in scripts)
    options = ["--cpu", "--beam", "1", "--max-len-b", "3", "--max-tokens", "1000"]
    output = run(scripts[1], tiny_model.data, "--path", tiny_model.checkpoint, *options, cwd=tmp_path, path=site)
    where = run(sys.executable, "-c", "import fairseq_mega; print(fairseq_mega.__file__)", cwd=tmp_path, path=site)
    assert where.strip() == str(site / "fairseq_mega" / "__init__.py")
    assert len(helpers.hypotheses(output)) == 461
