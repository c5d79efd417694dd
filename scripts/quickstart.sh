#!/usr/bin/env bash
# From nothing to a trained MEGA model that shows what it can do; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

# Options that cannot work are refused before anything is installed, by any Python 3.
for python in python3.11 python3.12 python3 python; do
  command -v "$python" >/dev/null && break
done
require_command "$python" "install Python 3.11 (Debian: apt-get install python3.11 python3.11-venv)"
checked=$("$python" "$repo_root/fairseq_mega/quickstart/options.py" "$@")
if [[ $checked != venv=* ]]; then # --help
  printf '%s\n' "$checked"
  exit 0
fi
venv='' skip_setup=''
eval "$checked"
: "${venv:=${FAIRSEQ_MEGA_VENV:-$repo_root/.venv}}"
[[ -n $skip_setup ]] || bash "$repo_root/scripts/setup.sh" --venv "$venv"
FAIRSEQ_MEGA_VENV=$venv activate_venv
require_command fairseq-mega-train "set the environment up with 'bash scripts/setup.sh', or leave --skip-setup out"
export PYTHONPATH="$repo_root${PYTHONPATH:+:$PYTHONPATH}" # python -m fairseq_mega... from any folder
exec python -m fairseq_mega.quickstart "$@"
