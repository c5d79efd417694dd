#!/usr/bin/env bash
# Builds the CUDA kernels on a machine with a GPU, tests and measures them there; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/gpu_check.sh [--out DIR] [--python EXE] [--wheels DIR] [--quick] [--skip-tests] [--skip-benchmarks]

On a machine with an NVIDIA GPU: builds the extension with its CUDA kernels (FORCE_CUDA=1), runs the tests of ops and
modules on the GPU, the same kernels under compute-sanitizer, and the benchmarks. What it finds is written to DIR:
logs, gpu.json (the GPU, driver, versions), kernels.json, layer.json and plots. A stage that is done is skipped when
the command is repeated; remove DIR to start again.

  --out DIR          where results go (default: outputs/gpu_check)
  --python EXE       a Python that has torch with CUDA, to be used as it is, instead of the environment of
                     scripts/setup.sh (default: that environment, which is set up if it is not there)
  --wheels DIR       install the wheels of this folder for that Python first, without a network and without
                     dependencies, into DIR/site
  --quick            small shapes only
  --skip-tests       build and measure
  --skip-benchmarks  build and test
  --help             this text
HELP
}

out=$repo_root/outputs/gpu_check
python=
wheels=
quick=no
tests=yes
benchmarks=yes
while [[ $# -gt 0 ]]; do
  case $1 in
    --out) require_value "$@"; out=$2; shift 2 ;;
    --python) require_value "$@"; python=$2; shift 2 ;;
    --wheels) require_value "$@"; wheels=$2; shift 2 ;;
    --quick) quick=yes; shift ;;
    --skip-tests) tests=no; shift ;;
    --skip-benchmarks) benchmarks=no; shift ;;
    --help | -h) usage; exit 0 ;;
    *) die "unknown option '$1'; see --help" ;;
  esac
done
[[ -z $wheels || -d $wheels ]] || die "--wheels is '$wheels', which is not a folder"
[[ -z $wheels || -n $python ]] || die "--wheels needs --python: the environment of scripts/setup.sh has what is needed"

require_command nvidia-smi "this script needs an NVIDIA GPU and its driver; without one: bash scripts/test.sh"
mkdir -p "$out/logs"
out=$(cd "$out" && pwd)
work_dir=$out
cd "$repo_root"
export FORCE_CUDA=1 FAIRSEQ_MEGA_NATIVE=require PYTHONWARNINGS=ignore
export PYTHONPATH="$repo_root${PYTHONPATH:+:$PYTHONPATH}"

if [[ -z $python ]]; then
  bash "$repo_root/scripts/setup.sh" --extras dev
  activate_venv
  python=python
elif [[ -n $wheels ]]; then
  install_wheels() {
    "$python" -m pip --disable-pip-version-check install --quiet --no-index --no-deps --upgrade \
      --target "$out/site" "$wheels"/*.whl
  }
  run_stage wheels install_wheels
  export PYTHONPATH="$PYTHONPATH:$out/site"
fi

describe() {
  "$python" - "$out/gpu.json" <<'PYTHON'
import json
import sys

import torch

if not torch.cuda.is_available():
    sys.exit("torch sees no CUDA device: install a torch built for CUDA, or check the driver with nvidia-smi")
device = torch.cuda.get_device_properties(0)
found = {
    "gpu": device.name,
    "capability": f"{device.major}.{device.minor}",
    "memory_gib": round(device.total_memory / 2**30, 1),
    "multiprocessors": device.multi_processor_count,
    "torch": torch.__version__,
    "cuda": torch.version.cuda,
    "python": sys.version.split()[0],
}
print(json.dumps(found))
with open(sys.argv[1], "w") as file:
    json.dump(found, file, indent=2)
PYTHON
}
run_stage describe describe

build() {
  "$python" setup.py --quiet build_ext --inplace --force &&
    "$python" -c '
from fairseq_mega.ops import native
assert native.HAS_CUDA, "the extension was built without CUDA"'
}
run_stage build run_logged build build

if [[ $tests == yes ]]; then
  "$python" -c 'import pytest' 2>/dev/null ||
    die "$python has no pytest: install it, put its wheels into the folder of --wheels, or give --skip-tests"
  run_tests() {
    "$python" -m pytest -q --device cuda tests/ops tests/modules
  }
  run_stage tests run_logged tests run_tests

  sanitize() {
    local tool
    for tool in memcheck racecheck; do
      log "compute-sanitizer $tool"
      compute-sanitizer --tool "$tool" --error-exitcode 9 "$python" -m pytest -q --device cuda -x \
        tests/ops -k "cuda and (widths or tiles or fused or strides)" || return
    done
  }
  if command -v compute-sanitizer >/dev/null; then
    run_stage sanitizer run_logged sanitizer sanitize
  else
    log "compute-sanitizer is not installed (it is part of the CUDA toolkit): left out"
  fi
fi

if [[ $benchmarks == yes ]]; then
  lengths=256,1024,4096,8192,16384,32768,65536
  [[ $quick == no ]] || lengths=256,1024
  measure_kernels() {
    "$python" scripts/benchmark_kernels.py --device cuda --shape 8,1024,16 --lengths "$lengths" \
      --json "$out/kernels.json" --plot "$out/kernels.png"
  }
  measure_layer() {
    local tokens=65536
    [[ $quick == no ]] || tokens=8192
    "$python" scripts/benchmark_layer.py --device cuda --tokens "$tokens" --json "$out/layer.json"
  }
  run_stage kernels run_logged kernels measure_kernels
  run_stage layer run_logged layer measure_layer
fi
log "done: the results are in $out"
