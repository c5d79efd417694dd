#!/usr/bin/env bash
# Makes the virtual environment that the other scripts use; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/setup.sh [--venv DIR] [--extras LIST] [--python EXE] [--torch BACKEND] [--apex FOLDER]

Creates a virtual environment with the versions of scripts/constraints.txt and installs this package into it
(editable). The first call needs three to five minutes on two idle cores, and the time to download torch; later calls only
check a stamp. A line at least every 30 seconds tells how far it has come.

  --venv DIR     folder of the environment (default: $FAIRSEQ_MEGA_VENV, else .venv of the checkout)
  --extras LIST  extras of setup.py, separated by commas: translation, plots, images, speech, lm-eval,
                 dev (default: translation,plots)
  --python EXE   Python 3.11 to 3.14 for the environment (default: python3 where it is one of these, else the newest
                 that is found)
  --torch BACKEND
                 install the build of torch for cpu, cu130, rocm6.4 or another backend that uv knows, with uv, which is
                 installed first and finds the address by itself. Without the option pip installs the build of its
                 index, which for Linux on x86-64 is that for CUDA: its packages take several GB
  --apex FOLDER  build NVIDIA's apex, too, from its sources in FOLDER (a clone of github.com/NVIDIA/apex; needs nvcc).
                 It is optional, see examples/kernels/README.md. "pip install apex" installs another package
  --help         this text

The compiled kernels of this package are built, too: for the CPU where a C++ compiler is found, and for CUDA where
torch was built for CUDA and nvcc is found. FAIRSEQ_MEGA_BUILD=none|cpu|cuda requires one of these choices.

pip's own environment variables and configuration (index, find-links, proxy) are respected, those of uv with --torch.
A torch or fairseq of the pinned version that is already in the environment is left as it is.
HELP
}

venv=${FAIRSEQ_MEGA_VENV:-$repo_root/.venv}
extras=translation,plots
python=
backend=
apex=
while [[ $# -gt 0 ]]; do
  case $1 in
    --venv) require_value "$@"; venv=$2; shift 2 ;;
    --extras) require_value "$@"; extras=$2; shift 2 ;;
    --python) require_value "$@"; python=$2; shift 2 ;;
    --torch) require_value "$@"; backend=$2; shift 2 ;;
    --apex) require_value "$@"; apex=$2; shift 2 ;;
    --help | -h) usage; exit 0 ;;
    *) die "unknown option '$1'; see --help" ;;
  esac
done
[[ $extras =~ ^[a-z-]+(,[a-z-]+)*$ ]] || die "--extras is '$extras': names separated by commas are needed, for instance translation,plots"
for extra in ${extras//,/ }; do
  grep -qE "^ +\"$extra\": [A-Z_]+,$" "$repo_root/setup.py" || die "--extras names '$extra', which setup.py does not have; see --help"
done
[[ -z $apex || -d $apex/apex/multi_tensor_apply ]] || # not the web toolkit of the same name
  die "--apex is '$apex': give the folder of a clone of https://github.com/NVIDIA/apex"
constraints=$repo_root/scripts/constraints.txt

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
  "$venv/bin/python" -m pip --disable-pip-version-check --no-input install --no-compile --constraint "$constraints" "$@"
}

# uv knows the addresses of torch's builds. torchvision has to be built for the same one.
install_torch() {
  local wanted=("$torch")
  if [[ -z $backend ]]; then
    pip_install "$torch"
    return
  fi
  [[ ! ,$extras, =~ ,(images|dev), ]] || wanted+=("$(pinned torchvision)")
  pip_install "$(pinned uv)"
  "$venv/bin/python" -m uv pip install --python "$venv/bin/python" --torch-backend "$backend" \
    --constraint "$constraints" "${wanted[@]}"
}

stop_all() {
  local pid
  for pid in $(jobs -rp); do
    kill -- "-$pid" 2>/dev/null || true
  done
}
trap stop_all EXIT

# begin NAME COMMAND...: starts a command in the background, with its output in $venv/NAME.log.
begin() {
  local name=$1
  shift
  set -m # a process group of its own, with the compilers that it starts
  "$@" >"$venv/$name.log" 2>&1 </dev/null &
  set +m
  printf -v "pid_$name" %s "$!"
}

# reached: what the last lines say of the commands that have begun.
reached() {
  local file
  for file in "$venv"/*.log; do
    grep -oE "compiled [0-9]+ of [0-9]+|building '[^']+' extension|Downloading [^ ]+|Installing [a-z ]+" "$file" | tail -n 1 || true
  done
}

# finish NAME: waits for a command that was begun, with a line every 25 seconds.
finish() {
  local pid=pid_$1 next=$((SECONDS + 25))
  while kill -0 "${!pid}" 2>/dev/null; do
    sleep 1
    if ((SECONDS >= next)); then
      log "    $1: $(reached | paste -sd ';' - | sed 's/;/; /g')"
      next=$((SECONDS + 25))
    fi
  done
  if ! wait "${!pid}"; then
    # The compiler's messages fill thousands of lines; those of errors say what there is to do.
    grep -iE '\b(error|killed)\b' "$venv/$1.log" | cut -c -300 | tail -n 12 >&2 || true
    die "the step '$1' failed (above: the last lines that tell errors; all of them: $venv/$1.log). What is done stays, so repeat the same command. Where no package index was reached, set PIP_FIND_LINKS to a folder of wheels"
  fi
  rm "$venv/$1.log"
}

# Objects of the kernels stay in $FAIRSEQ_MEGA_OBJECTS, so that the installation of the package only links them.
compile_kernels() {
  cd "$repo_root"
  "$venv/bin/python" setup.py --quiet build_ext --build-lib "$venv/kernels" --build-temp "$venv/kernels"
  rm -rf "$venv/kernels"
}

pinned() {
  local line
  line=$(grep -i -m1 "^$1==" "$constraints") || die "$constraints has no line '$1=='"
  printf '%s\n' "$line"
}

# build_apex: builds apex where its kernels cannot be loaded: for the first time, or for another torch.
build_apex() {
  local kernels='import torch, amp_C, fused_layer_norm_cuda' options=()
  [[ $apex ]] || return 0
  if "$venv/bin/python" -c "$kernels" 2>/dev/null; then
    log "apex is installed already (to build it again remove it with pip)"
    return 0
  fi
  log "apex from $apex (ten minutes and more where its kernels are compiled)"
  # Sources that know no variable for their kernels have options of setup.py; in one word, which setuptools splits.
  grep -q APEX_CUDA_EXT "$apex/setup.py" || options=(--use-pep517 "--config-settings=--build-option=--cpp_ext --cuda_ext")
  # An absolute path: pip looks a bare name up in the index.
  APEX_CPP_EXT=1 APEX_CUDA_EXT=1 pip_install --quiet --no-build-isolation --no-cache-dir --force-reinstall --no-deps \
    ${options[@]+"${options[@]}"} "$(cd "$apex" && pwd)" || die "apex could not be built (above); it is optional: omit --apex"
  "$venv/bin/python" -c "$kernels" || die "apex was built from $apex without its kernels"
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

export FAIRSEQ_MEGA_OBJECTS=${FAIRSEQ_MEGA_OBJECTS:-$venv/objects}
log "the set-up takes three to five minutes on two idle cores, and the time to download torch"
log "1/4 build tools and numpy"
begin tools pip_install "$(pinned setuptools)" "$(pinned wheel)" "$(pinned cython)" "$(pinned numpy)"
finish tools

torch=$(pinned torch)
if is_installed "$torch"; then
  log "2/4 torch: $torch is there already"
else
  log "2/4 torch ($torch)"
  if [[ -z $backend && $(uname -sm) == "Linux x86_64" && ! -e /dev/nvidia0 ]] && ! command -v nvidia-smi >/dev/null; then
    log "    no GPU is visible here, and the packages for GPUs take several GB: --torch cpu installs torch without them"
  fi
  begin torch install_torch
  finish torch
fi

fairseq=$(pinned fairseq-fixed)
if is_installed "$fairseq"; then
  log "3/4 the kernels of this package ($fairseq is there already)"
  begin kernels compile_kernels
else
  log "3/4 fairseq ($fairseq), which compiles its extensions one by one, and beside it the kernels of this package"
  require_to_build "$venv/bin/python"
  begin kernels compile_kernels
  # These extensions are small beside torch's headers: optimising them, and debug symbols, would only cost minutes.
  # One after the other: built side by side they overwrite each other's build.ninja where ninja is installed.
  CFLAGS="-O1 -g0 ${CFLAGS-}" begin fairseq pip_install --verbose --no-build-isolation "$fairseq"
  finish fairseq
fi
finish kernels

log "4/4 fairseq_mega with the extras $extras"
begin package pip_install --no-build-isolation --editable "${repo_root}[$extras]"
finish package

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

log "    checking that the package can be imported"
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
build_apex
log "done: the environment is $venv"
