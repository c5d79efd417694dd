#!/usr/bin/env bash
# Tests the package with the lowest versions that setup.py allows; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/test_lowest.sh [--venv DIR] [--python EXE] [PYTEST ARGUMENT...]

Makes an environment with the lowest versions that setup.py and pyproject.toml allow, without the compiled kernels
(these need a newer torch), and runs the tests of operators, modules and commands there. Run it after a change
of these bounds. The first run downloads some 3 GB, as the index has this torch with CUDA only, and compiles fairseq.

  --venv DIR    the environment (default: .venv-lowest of the checkout)
  --python EXE  Python 3.11 for the environment (default: python3.11)
  --help        this text

Every other argument is passed to pytest instead of the names of these tests.
HELP
}

venv=$repo_root/.venv-lowest
python=python3.11
pytest_arguments=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --venv) require_value "$@"; venv=$2; shift 2 ;;
    --python) require_value "$@"; python=$2; shift 2 ;;
    --help | -h) usage; exit 0 ;;
    *) pytest_arguments+=("$1"); shift ;;
  esac
done
# The compiler of torch 2.4 does not understand os.environ.get: compiled layers fall into several graphs there.
[[ ${#pytest_arguments[@]} -gt 0 ]] ||
  pytest_arguments=(tests/ops tests/modules tests/models/test_mega.py tests/cli/test_console.py -k "not one_graph")

pip_install() {
  "$venv/bin/python" -m pip --disable-pip-version-check install --quiet "$@"
}

[[ -x $venv/bin/python ]] || "$python" -m venv "$venv"
venv=$(cd "$venv" && pwd)
cd "$repo_root"
# The lowest versions as requirements, such as torch==2.4.
mapfile -t lowest < <(
  sed -nE 's/^requires = \["([a-z]+)>=([0-9.]+)"\]$/\1==\2/p' pyproject.toml
  sed -nE '/^INSTALL_REQUIRES = /,/^\]/ s/^ +"([a-z-]+)>=([0-9.]+)",$/\1==\2/p' setup.py
)
log "build tools and torch"
mapfile -t first < <(printf '%s\n' "${lowest[@]}" | grep -E '^(setuptools|numpy|torch)==')
pip_install wheel cython pytest hypothesis packaging "${first[@]}"
log "fairseq and the rest"
CFLAGS="-O1 -g0 ${CFLAGS-}" pip_install --no-build-isolation "${lowest[@]}"

log "pytest with: ${lowest[*]}"
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0 PYTHONWARNINGS=ignore FAIRSEQ_MEGA_NATIVE=off
PYTHONPATH=$repo_root "$venv/bin/python" -m pytest -q -p no:cacheprovider "${pytest_arguments[@]}"
