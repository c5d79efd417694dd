#!/usr/bin/env bash
# Makes the virtual environment that the other scripts use; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/setup.sh [--venv DIR] [--extras LIST] [--python EXE] [--apex FOLDER]

Creates a virtual environment with the versions of scripts/constraints.txt and installs this package into it
(editable). The first call needs a few minutes, mostly to compile fairseq; later calls only check a stamp.

  --venv DIR     folder of the environment (default: $FAIRSEQ_MEGA_VENV, else .venv of the checkout)
  --extras LIST  extras of setup.py, separated by commas: translation, plots, images, speech, lm-eval,
                 dev (default: translation)
  --python EXE   Python 3.11 to 3.14 for the environment (default: python3 where it is one of these, else the newest
                 that is found)
  --apex FOLDER  build NVIDIA's apex, too, from its sources in FOLDER (a clone of github.com/NVIDIA/apex; needs nvcc).
                 It is optional, see examples/kernels/README.md. "pip install apex" installs another package
  --help         this text

The compiled kernels of this package are built, too: for the CPU where a C++ compiler is found, and for CUDA where
torch was built for CUDA and nvcc is found. FAIRSEQ_MEGA_BUILD=none|cpu|cuda requires one of these choices.

pip's own environment variables and configuration (index, find-links, proxy) are respected, for instance to choose
a build of torch: the usual one for Linux on x86-64 is for CUDA, 2.7 GB to download and 4.6 GB on the disk; the one
for CPUs has 0.2 GB:

  PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu bash scripts/setup.sh

A torch or fairseq of the pinned version that is already in the environment is left as it is.
HELP
}

venv=${FAIRSEQ_MEGA_VENV:-$repo_root/.venv}
extras=translation
python=
apex=
while [[ $# -gt 0 ]]; do
  case $1 in
    --venv) require_value "$@"; venv=$2; shift 2 ;;
    --extras) require_value "$@"; extras=$2; shift 2 ;;
    --python) require_value "$@"; python=$2; shift 2 ;;
    --apex) require_value "$@"; apex=$2; shift 2 ;;
    --help | -h) usage; exit 0 ;;
    *) die "unknown option '$1'; see --help" ;;
  esac
done
[[ $extras =~ ^[a-z-]+(,[a-z-]+)*$ ]] || die "--extras is '$extras': names separated by commas are needed, for instance translation,plots"
for extra in ${extras//,/ }; do
  case $extra in
    translation | plots | images | speech | lm-eval | dev) ;;
    *) die "--extras names '$extra', which setup.py does not have: choose from translation, plots, images, speech, lm-eval, dev" ;;
  esac
done
[[ -z $apex || -d $apex ]] || die "--apex is '$apex', which is no folder: give that of a clone of https://github.com/NVIDIA/apex"
constraints=$repo_root/scripts/constraints.txt
require_file "$constraints" "take the whole repository, not only this script"

python_version_of() {
  "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}

supported() {
  [[ $1 =~ ^3\.1[1-4]$ ]]
}

find_python() {
  local candidate version found=() candidates=("${pythons[@]}")
  if [[ -n $python ]]; then
    candidates=("$python")
  fi
  for candidate in "${candidates[@]}"; do
    version=$(python_version_of "$candidate") || continue
    if supported "$version"; then
      command -v "$candidate"
      return 0
    fi
    found+=("$candidate is $version")
  done
  local list
  list=$(printf '%s, ' "${found[@]:-none that runs}")
  die "Python 3.11, 3.12, 3.13 or 3.14 is needed, found: ${list%, }. $python_remedy"
}

# require_to_build EXE: names all that a build of fairseq lacks, before anything is downloaded.
require_to_build() {
  local version missing=() debian=()
  version=$(python_version_of "$1")
  if [[ ! -x $venv/bin/python ]] && ! "$1" -c 'import ensurepip, venv' 2>/dev/null; then
    missing+=("Python's venv module")
    debian+=("python$version-venv")
  fi
  if ! "$1" -c 'import os, sysconfig; os.stat(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2>/dev/null; then
    missing+=("Python's headers (Python.h)")
    debian+=("python$version-dev")
  fi
  if ! command -v g++ >/dev/null; then
    missing+=("a C++ compiler (g++)")
    debian+=("g++")
  fi
  [[ ${#missing[@]} -gt 0 ]] || return 0
  local list
  list=$(printf '%s, ' "${missing[@]}")
  die "fairseq is compiled with $1, and this machine lacks ${list%, }: install the packages (Debian, Ubuntu: apt-get install ${debian[*]}), then repeat"
}

hash_of_inputs() {
  local sources=()
  while IFS= read -r file; do
    sources+=("$file")
  done < <(find "$repo_root/fairseq_mega/csrc" -type f | LC_ALL=C sort)
  printf '%s\n' "$repo_root" "${FAIRSEQ_MEGA_BUILD:-auto}" "${FORCE_CUDA:-0}" "${TORCH_CUDA_ARCH_LIST:-}" |
    cat - "$constraints" "$repo_root/setup.py" "$repo_root/pyproject.toml" "${BASH_SOURCE[0]}" "${sources[@]}" |
    "$venv/bin/python" -c 'import hashlib, sys; print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())'
}

pip_install() {
  "$venv/bin/python" -m pip --disable-pip-version-check --no-input install --quiet --no-compile \
    --constraint "$constraints" "$@"
}

pinned() {
  local line
  line=$(grep -i -m1 "^$1==" "$constraints") || die "$constraints has no line '$1=='"
  printf '%s\n' "$line"
}

build_apex() {
  [[ $apex ]] || return 0
  log "apex from $apex (ten minutes and more where its kernels are compiled)"
  "$venv/bin/python" "$repo_root/scripts/apex_source.py" "$apex" --quiet --constraint "$constraints"
}

is_installed() { # NAME==VERSION; a local version suffix such as +cu126 is ignored
  "$venv/bin/python" -I - "$1" <<'PYTHON'
import sys
from importlib import metadata
name, version = sys.argv[1].split("==")
try:
    found = metadata.version(name)
except metadata.PackageNotFoundError:
    sys.exit(1)
sys.exit(found.split("+")[0] != version)
PYTHON
}

if [[ -e $venv && ! -d $venv ]]; then
  die "--venv is '$venv', which is not a folder"
fi
[[ $venv != *:* ]] || die "--venv is '$venv': a colon parts the folders of \$PATH, so choose a folder without one"
if [[ -x $venv/bin/python ]]; then
  version=$(python_version_of "$venv/bin/python") || die "$venv/bin/python does not run: remove $venv and repeat"
  supported "$version" || die "the environment $venv has Python $version, needed is 3.11, 3.12, 3.13 or 3.14: choose another folder with --venv"
elif [[ -d $venv && -n $(ls -A "$venv") && ! -e $venv/pyvenv.cfg ]]; then
  die "--venv is '$venv', a folder with other contents: choose a new or empty folder"
fi
if [[ ! -x $venv/bin/python ]] || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
  python=$(find_python)
  require_to_build "$python"
  log "creating the environment $venv with $python"
  "$python" -m venv "$venv" ||
    die "'$python -m venv $venv' failed (message above): remove $venv and repeat"
fi
venv=$(cd "$venv" && pwd)

stamp=$venv/.fairseq_mega_setup-${extras//,/-}
inputs=$(hash_of_inputs)
if [[ -f $stamp && $(<"$stamp") == "$inputs" ]]; then
  log "the environment $venv is up to date (to repeat the installation remove $stamp)"
  build_apex
  exit 0
fi

trap 'log "the set-up did not finish (messages above); what is done stays, so repeat the same command. Where no package index was reached, set PIP_FIND_LINKS to a folder of wheels"' ERR

log "1/4 build tools and numpy"
pip_install "$(pinned setuptools)" "$(pinned wheel)" "$(pinned cython)" "$(pinned numpy)"

torch=$(pinned torch)
if is_installed "$torch"; then
  log "2/4 torch: $torch is there already"
else
  log "2/4 torch ($torch)"
  if [[ $(uname -sm) == "Linux x86_64" ]]; then
    log "    the usual build is for CUDA: 2.7 GB to download, 4.6 GB on the disk"
    command -v nvidia-smi >/dev/null ||
      log "    without a GPU that for CPUs does (0.2 GB): stop, and set PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu"
  fi
  pip_install "$torch"
fi

fairseq=$(pinned fairseq-fixed)
if is_installed "$fairseq"; then
  log "3/4 fairseq: $fairseq is there already"
else
  log "3/4 fairseq ($fairseq): compiles three extensions against torch, the longest step (two to four minutes)"
  require_to_build "$venv/bin/python"
  # These extensions are small beside torch's headers: optimising them, and debug symbols, would only cost minutes.
  # One after the other: built side by side they overwrite each other's build.ninja where ninja is installed.
  CFLAGS="-O1 -g0 ${CFLAGS-}" pip_install --no-build-isolation "$fairseq" >"$venv/fairseq_build.log" 2>&1 &
  build=$!
  trap 'kill "$build" 2>/dev/null || true' INT TERM
  begun=$(date +%s)
  while kill -0 "$build" 2>/dev/null; do
    sleep 1
    waited=$(($(date +%s) - begun))
    ((waited == 0 || waited % 30)) || log "3/4 fairseq: still compiling ($waited s)"
  done
  if ! wait "$build"; then
    # The compiler's messages fill thousands of lines; those of errors say what there is to do.
    grep -iE '\b(error|killed)\b' "$venv/fairseq_build.log" | cut -c -300 | tail -n 12 >&2 || true
    die "fairseq could not be built or fetched (above: the last lines that tell errors; all of them: $venv/fairseq_build.log)"
  fi
  rm "$venv/fairseq_build.log"
  trap - INT TERM
fi

log "4/4 fairseq_mega with the extras $extras, its kernels compiled (one to two minutes)"
pip_install --no-build-isolation --editable "${repo_root}[$extras]"

# Where Python may not write its bytecode beside the sources, every start of a command would compile torch anew.
if [[ -n ${PYTHONDONTWRITEBYTECODE-} ]]; then
  log "compiling the packages to bytecode (PYTHONDONTWRITEBYTECODE is set)"
  packages=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  "$venv/bin/python" -m compileall -q -j 0 -x '/tests?/|torch/testing/' "$packages" >/dev/null 2>&1 || true # examples in Python 2
fi

# 'fairseq-train --user-dir fairseq_mega' looks beside fairseq's own folder, from wherever it is called. Python 3.14
# has to repair fairseq before that can be imported, see the file. All is entered in the installation's RECORD, so
# that pip removes it, and only it, with the package.
"$venv/bin/python" -I - "$repo_root/fairseq_mega" <<'PYTHON'
import sys
from importlib import metadata
from pathlib import Path

record = Path(next(file for file in metadata.files("fairseq_mega") if file.name == "RECORD").locate())
site, package = record.parent.parent, Path(sys.argv[1])
links = {"fairseq_mega": package}
if sys.version_info >= (3, 14):
    links["fairseq_mega_startup.py"] = package / "compat" / "startup.py"
    (site / "fairseq_mega_startup.pth").write_text("import fairseq_mega_startup\n")
for name, target in links.items():
    if (site / name).is_symlink():
        (site / name).unlink()
    if not (site / name).exists():
        (site / name).symlink_to(target)
lines = record.read_text().splitlines()
ours = ["fairseq_mega,,", *(f"{file.name},," for file in sorted(site.glob("fairseq_mega_startup.*")))]
record.write_text("\n".join([*lines, *(line for line in ours if line not in lines)]) + "\n")
PYTHON

is_installed "$torch" || die "after the installation torch is not $torch any more: remove $venv and repeat"
(cd / && PYTHONWARNINGS=ignore "$venv/bin/python" -c 'import fairseq_mega, fairseq.data.data_utils_fast') ||
  die "fairseq_mega cannot be imported from $venv (message above): remove $venv and repeat"
(cd / && PYTHONWARNINGS=ignore "$venv/bin/python" - >&2 <<'PYTHON'
from fairseq_mega.ops.common import native

devices = "CPU and CUDA" if native.HAS_CUDA else "CPU"
missing = f"none, pure PyTorch is used, which is slower: {native.PROBLEM}; {native.REMEDY}"
print(f"compiled kernels: {devices if native.PROBLEM is None else missing}")
PYTHON
)
printf '%s\n' "$inputs" >"$stamp"
trap - ERR
build_apex
log "done: the environment is $venv"
