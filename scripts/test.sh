#!/usr/bin/env bash
# Sets up the environment and runs every check and test; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/test.sh [--venv DIR] [--skip-setup] [--only-lint | --skip-lint] [--jobs N] [--exhaustive]
                            [--cpu-level LEVEL] [PYTEST ARGUMENT...]

Sets up the environment (scripts/setup.sh with the extra "dev"), then runs ruff, mypy, shellcheck and pytest. The
compiled kernels are required (FAIRSEQ_MEGA_BUILD=cpu, or cuda if set so; FAIRSEQ_MEGA_NATIVE=require). Without
pytest arguments the tests of ops and modules run a second time with the kernels switched off; the exit status is 0
only if both runs passed. Every other argument is passed to pytest, for instance: bash scripts/test.sh tests/ops -k ema --device cuda

  --venv DIR    the environment (default: $FAIRSEQ_MEGA_VENV, else .venv of the checkout)
  --skip-setup  use the environment as it is
  --only-lint   ruff, mypy and shellcheck only
  --skip-lint   pytest only
  --jobs N      number of test processes (default: the number of cores, at most 8; one with --device cuda, with a
                debugger or -s, and with -n or --dist of pytest-xdist)
  --exhaustive  every case of crossed parameters and the tests marked "exhaustive", for a release; without it a test
                with three parameters or more runs in cases that cover every pair of values
  --cpu-level LEVEL
                baseline, avx2, avx512, avx512_bf16 or amx_bf16: run the tests as on a CPU with these instructions at
                most; for our kernels (FAIRSEQ_MEGA_CPU_LEVEL), PyTorch's (ATEN_CPU_CAPABILITY), oneDNN's
                (ONEDNN_MAX_CPU_ISA) and MKL's (MKL_ENABLE_INSTRUCTIONS)
  --help        this text
HELP
}

setup=yes
lint=yes
tests=yes
jobs=
exhaustive=()
cpu_level=
pytest_arguments=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --venv) require_value "$@"; export FAIRSEQ_MEGA_VENV=$2; shift 2 ;;
    --skip-setup) setup=no; shift ;;
    --only-lint) tests=no; shift ;;
    --skip-lint) lint=no; shift ;;
    --jobs) require_value "$@"; jobs=$2; shift 2 ;;
    --exhaustive) exhaustive=(--exhaustive); shift ;;
    --cpu-level) require_value "$@"; cpu_level=$2; shift 2 ;;
    --help | -h) usage; exit 0 ;;
    *) pytest_arguments+=("$1"); shift ;;
  esac
done
[[ $lint == yes || $tests == yes ]] || die "--only-lint and --skip-lint together leave nothing to do"
[[ -z $jobs || $jobs =~ ^[1-9][0-9]*$ ]] || die "--jobs is '$jobs'; give a whole number above 0"

# No silent fallback to pure PyTorch: a kernel that does not build or load fails the tests.
export FAIRSEQ_MEGA_BUILD=${FAIRSEQ_MEGA_BUILD:-cpu}
if [[ $FAIRSEQ_MEGA_BUILD != none ]]; then
  export FAIRSEQ_MEGA_NATIVE=${FAIRSEQ_MEGA_NATIVE:-require}
fi
if [[ $setup == yes ]]; then
  bash "$repo_root/scripts/setup.sh" --extras dev
fi
activate_venv
cd "$repo_root"

# Another processor's instructions would end the process, so that ours are asked first whether this one has the level.
if [[ -n $cpu_level ]]; then
  export FAIRSEQ_MEGA_CPU_LEVEL=$cpu_level
  python -c 'import fairseq_mega.ops.common.native' || die "--cpu-level $cpu_level cannot be simulated here, see above"
  case $cpu_level in
    baseline) export ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 MKL_ENABLE_INSTRUCTIONS=SSE4_2 ;;
    avx2) export ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 ;;
    avx512) export ATEN_CPU_CAPABILITY=avx512 ONEDNN_MAX_CPU_ISA=AVX512_CORE MKL_ENABLE_INSTRUCTIONS=AVX512 ;;
    avx512_bf16) export ATEN_CPU_CAPABILITY=avx512 ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 MKL_ENABLE_INSTRUCTIONS=AVX512 ;;
    amx_bf16) export ATEN_CPU_CAPABILITY=avx512 ONEDNN_MAX_CPU_ISA=AVX512_CORE_AMX MKL_ENABLE_INSTRUCTIONS=AVX512 ;;
  esac
  # Inductor takes what it compiled for another level from its cache, and computes wrong numbers with it.
  user=$(id -un)
  export TORCHINDUCTOR_CACHE_DIR=${TMPDIR:-/tmp}/torchinductor_${user}_$cpu_level
fi

# Idle OpenMP threads that spin slow tiny models down a hundredfold on a busy machine.
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0
export PYTHONWARNINGS=${PYTHONWARNINGS:-ignore}

if [[ $lint == yes ]]; then
  log "ruff"
  ruff check .
  ruff format --check .
  log "mypy"
  mypy
  log "shellcheck"
  shell_scripts=(.ci/run)
  while IFS= read -r file; do
    shell_scripts+=("$file")
  done < <(find scripts examples -name '*.sh' 2>/dev/null | sort)
  shellcheck --external-sources "${shell_scripts[@]}"
fi

# Every test keeps to one thread, so there is room for one process per core.
usual_jobs() {
  local argument
  for argument in "${pytest_arguments[@]}"; do
    case $argument in
      -n* | --numprocesses* | --dist* | --tx* | *no:xdist | --pdb* | --trace | -s | --capture=no | cuda | --device=cuda)
        echo 1
        return
        ;;
    esac
  done
  python -c 'import os; print(min(8, len(os.sched_getaffinity(0))))'
}

if [[ $tests == yes ]]; then
  [[ -n $jobs ]] || jobs=$(usual_jobs)
  processes=()
  if [[ $jobs -gt 1 ]]; then
    python -c 'import xdist' 2>/dev/null || die "$jobs processes need pytest-xdist: omit --skip-setup, or give --jobs 1"
    processes=(-n "$jobs" --dist loadfile)  # tests of a file share results that are slow to make
  fi
  log "pytest, $jobs at a time"
  failed=()
  python -m pytest "${processes[@]}" "${exhaustive[@]}" "${pytest_arguments[@]}" || failed+=("the tests")
  if [[ ${#pytest_arguments[@]} -eq 0 && ${FAIRSEQ_MEGA_NATIVE-} == require ]]; then
    log "pytest without the compiled kernels"
    FAIRSEQ_MEGA_NATIVE=off python -m pytest -q "${processes[@]}" "${exhaustive[@]}" tests/ops tests/modules ||
      failed+=("the tests without the compiled kernels")
  fi
  [[ ${#failed[@]} -eq 0 ]] || die "failed, see above: $(printf '%s, ' "${failed[@]}" | sed 's/, $//')"
fi
