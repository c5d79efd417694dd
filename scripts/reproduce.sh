# shellcheck shell=bash
# What the scripts of the tables and figures share; to be sourced by a bash script that has set -euo pipefail.

# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

# reproduce NAME FOLDER "$@": the environment, then fairseq-mega-reproduce NAME with these options; what it makes goes to
# outputs/FOLDER in the checkout unless an option says otherwise. What --help says first is read from file descriptor 3;
# the variable "extras" names further extras of setup.py.
reproduce() {
  local name=$1 out=$repo_root/outputs/$2 venv=${FAIRSEQ_MEGA_VENV:-$repo_root/.venv} skip_setup='' words=()
  shift 2
  while [[ $# -gt 0 ]]; do
    case $1 in
      --venv) require_value "$@"; venv=$2; shift 2 ;;
      --skip-setup) skip_setup=yes; shift ;;
      --smoke) out+=-smoke; words+=("$1"); shift ;;
      --print | --yaml) out=''; words+=("$1"); shift ;; # which writes nothing
      --help | -h) cat <&3; reproduce_help; exit 0 ;;
      --) words+=("$@"); break ;;
      *) words+=("$1"); shift ;;
    esac
  done
  [[ $skip_setup ]] || bash "$repo_root/scripts/setup.sh" --venv "$venv" --extras translation,plots${extras:+,$extras}
  FAIRSEQ_MEGA_VENV=$venv activate_venv
  export PYTHONPATH="$repo_root${PYTHONPATH:+:$PYTHONPATH}" # python -m fairseq_mega... from any folder
  export PYTHONWARNINGS=${PYTHONWARNINGS-ignore}
  exec python -m fairseq_mega.lab.reproduce.command "$name" --root "$repo_root" ${out:+--out "$out"} ${words[@]+"${words[@]}"} 3<&-
}

# reproduce_help: the lines of --help on the options that all these scripts have.
reproduce_help() {
  cat <<'HELP'

  --venv DIR        virtual environment (default: $FAIRSEQ_MEGA_VENV, else .venv of the checkout)
  --skip-setup      use the environment as it is, without scripts/setup.sh
  --help            this text

All other options are those of fairseq-mega-reproduce, whose --help describes them: --smoke for a quick try with toy
models, --list, --print, --out DIR, --data DIR, --seeds LIST, --gpus N, --max-update N, --precision P,
--set GROUP.OPTION=VALUE. Options after -- are passed to fairseq-train. The same command continues an interrupted run.
HELP
}
