# shellcheck shell=bash
# The work folder, the environment and the options for them, of scripts that do long work; to be sourced by a bash script
# that has set -euo pipefail.

# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

work_dir='' smoke='' skip_setup=''
workers=$(getconf _NPROCESSORS_ONLN)
venv=${FAIRSEQ_MEGA_VENV:-$repo_root/.venv}

# common_option "$@": takes the option that "$@" begins with, and sets "taken" to the number of words to shift.
# shellcheck disable=SC2034 # the caller shifts by "taken"
common_option() {
  taken=2
  case $1 in
    --out) require_value "$@"; work_dir=$2 ;;
    --workers) require_value "$@"; workers=$2 ;;
    --venv) require_value "$@"; venv=$2 ;;
    --skip-setup) skip_setup=yes; taken=1 ;;
    --smoke) smoke=yes; taken=1 ;;
    --help | -h) usage; exit 0 ;;
    *) die "unknown option '$1'; see --help" ;;
  esac
}

# common_help: the lines of --help on these options.
common_help() {
  cat <<'HELP'
  --workers N       processes (default: the number of cores)
  --venv DIR        virtual environment (default: $FAIRSEQ_MEGA_VENV, else .venv of the checkout)
  --skip-setup      take that environment as it is, instead of bringing it up to date with scripts/setup.sh
  --smoke           a little made-up text instead, in seconds
  --help            this text
HELP
}

# start_work SETTING...: the environment and the work folder. Stages done so far belong to these settings.
start_work() {
  whole_number --workers "$workers" 1
  if [[ ! $skip_setup ]]; then
    bash "$repo_root/scripts/setup.sh" --venv "$venv"
  fi
  FAIRSEQ_MEGA_VENV=$venv activate_venv
  require_command fairseq-preprocess "run 'bash scripts/setup.sh'"
  export PYTHONPATH="$repo_root${PYTHONPATH:+:$PYTHONPATH}" # python -m fairseq_mega... from any folder
  export PYTHONWARNINGS=${PYTHONWARNINGS-ignore}
  mkdir -p "$work_dir/logs" || die "--out $work_dir cannot be made: give a folder you may write to"
  work_dir=$(cd "$work_dir" && pwd)
  keep_settings --out "$@" "smoke: ${smoke:-no}"
}
