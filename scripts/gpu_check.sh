#!/usr/bin/env bash
# Checks and measures the CUDA kernels on a machine with a GPU; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# --python EXE chooses a Python that has torch with CUDA; without it, the environment of scripts/setup.sh is set up and
# used. Every other option belongs to gpu_check.py.
python=
options=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --python) require_value "$@"; python=$2; shift 2 ;;
    --help | -h) printf 'usage: bash scripts/gpu_check.sh [--python EXE] [OPTION...]\n\n'; options=(--help); break ;;
    *) options+=("$1"); shift ;;
  esac
done
if [[ -z $python ]]; then
  if [[ ${options[0]-} == --help ]]; then
    python=python3
  else
    bash "$repo_root/scripts/setup.sh" --extras dev
    activate_venv
    python=python
  fi
fi
exec "$python" "$repo_root/scripts/gpu_check.py" ${options[@]+"${options[@]}"}
