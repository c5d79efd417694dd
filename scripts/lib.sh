# shellcheck shell=bash
# Helpers shared by the scripts of this folder; to be sourced by a bash script that has set -euo pipefail.

shopt -s inherit_errexit 2>/dev/null || true # bash before 4.4 has no such option

repo_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
: "${FAIRSEQ_MEGA_STARTED:=$(date +%s)}"
export FAIRSEQ_MEGA_STARTED # scripts started by this one count the time from the same moment

# log MSG...: a progress line to stderr, with the elapsed minutes:seconds.
log() {
  local elapsed=$(($(date +%s) - FAIRSEQ_MEGA_STARTED))
  printf '[%02d:%02d] %s\n' $((elapsed / 60)) $((elapsed % 60)) "$*" >&2
}

# die MSG...: an error to stderr, exit status 1.
die() {
  printf '%s: error: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# require_value [OPTION] "$@": dies unless the option that "$@" begins with is followed by a value.
require_value() {
  local option=$1
  shift
  if [[ ${1-} == "$option" ]]; then
    shift
  fi
  if [[ $# -eq 0 || -z $1 || $1 == --* ]]; then
    die "$option needs a value, found '${1-}'; see --help"
  fi
}

# whole_number OPTION VALUE LEAST: dies unless the value is a whole number of at least LEAST.
whole_number() {
  if [[ ! $2 =~ ^(0|[1-9][0-9]{0,11})$ ]] || (($2 < $3)); then
    die "$1 is '$2': a whole number of at least $3 is needed"
  fi
}

# one_of OPTION VALUE CHOICE...: dies unless the value is one of the choices.
one_of() {
  local option=$1 value=$2 choice
  shift 2
  for choice in "$@"; do
    [[ $value != "$choice" ]] || return 0
  done
  die "$option is '$value': choose from $(printf '%s, ' "$@" | sed 's/, $//')"
}

# list_of OPTION VALUE CHOICE...: dies unless the value is a list, separated by commas, of some of the choices.
list_of() {
  local option=$1 value=$2 one
  shift 2
  [[ $value =~ ^[^,]+(,[^,]+)*$ ]] || die "$option is '$value': names separated by commas are needed, of $*"
  for one in ${value//,/ }; do
    one_of "$option" "$one" "$@"
  done
}

# require_command NAME REMEDY: dies with the remedy where the command is not installed.
require_command() {
  command -v "$1" >/dev/null 2>&1 || die "the command '$1' was not found: $2"
}

# require_file PATH REMEDY: dies with the remedy where the file is missing or empty.
require_file() {
  [[ -e $1 ]] || die "$1 does not exist: $2"
  [[ ! -d $1 ]] || die "$1 is a folder where a file is needed: $2"
  [[ -s $1 ]] || die "$1 is empty: $2"
}

# activate_venv: puts $FAIRSEQ_MEGA_VENV, or else .venv of the checkout, first in PATH.
activate_venv() {
  local venv=${FAIRSEQ_MEGA_VENV:-$repo_root/.venv}
  [[ -x $venv/bin/python ]] || die "no virtual environment in $venv: run 'bash scripts/setup.sh' first, or set FAIRSEQ_MEGA_VENV"
  VIRTUAL_ENV=$(cd "$venv" && pwd)
  export VIRTUAL_ENV
  export PATH="$VIRTUAL_ENV/bin:$PATH"
  unset PYTHONHOME
  hash -r
}

# start MODULE WORD...: checks a script's options with any Python 3 before anything is installed, then sets the
# environment up and runs the module in it.
start() {
  local module=$1 python checked venv='' skip_setup=''
  for python in python3.11 python3.12 python3 python; do
    command -v "$python" >/dev/null && break
  done
  require_command "$python" "install Python 3.11 (Debian: apt-get install python3.11 python3.11-venv)"
  checked=$("$python" "$repo_root/scripts/check_options.py" "$@")
  if [[ $checked != venv=* ]]; then # --help
    printf '%s\n' "$checked"
    exit 0
  fi
  eval "$checked"
  : "${venv:=${FAIRSEQ_MEGA_VENV:-$repo_root/.venv}}"
  [[ -n $skip_setup ]] || bash "$repo_root/scripts/setup.sh" --venv "$venv"
  FAIRSEQ_MEGA_VENV=$venv activate_venv
  require_command fairseq-mega-train "set the environment up with 'bash scripts/setup.sh', or leave --skip-setup out"
  export PYTHONPATH="$repo_root${PYTHONPATH:+:$PYTHONPATH}" # python -m fairseq_mega... from any folder
  export PYTHONWARNINGS=${PYTHONWARNINGS-ignore}
  shift
  exec python -m "$module" "$@"
}

# run_stage NAME COMMAND...: runs the command once; its marker "$work_dir/.done/NAME" is made only on success.
# The command runs in a subshell with errexit, so variables that it sets are lost, and a failure of any of its steps ends the script.
# Never call run_stage in a condition (if, &&, ||): bash would then ignore errexit inside the stage.
run_stage() {
  local name=$1
  shift
  local marker=${work_dir:?run_stage needs work_dir}/.done/$name
  if [[ -e $marker ]]; then
    log "$name: done before, skipped (remove $marker to repeat it)"
    return 0
  fi
  mkdir -p "$work_dir/.done"
  log "$name: begins"
  local status=0
  set +e
  (
    set -euo pipefail
    "$@"
  )
  status=$?
  set -e
  if [[ $status -ne 0 ]]; then
    log "$name: failed with status $status"
    exit "$status"
  fi
  date -u +%Y-%m-%dT%H:%M:%SZ >"$marker"
  log "$name: done"
}

# keep_settings OPTION SETTING...: writes down the settings that the stages done in "$work_dir" belong to; dies where they
# were begun with others. The option is the one that names the folder. With "checking" set it writes nothing.
keep_settings() {
  local option=$1 settings=${work_dir:?keep_settings needs work_dir}/settings wanted
  shift
  wanted=$(printf '%s\n' "$@")
  if [[ ! -e $settings ]]; then
    [[ ${checking-} ]] || printf '%s\n' "$wanted" >"$settings"
  elif [[ $wanted != "$(cat "$settings")" ]]; then
    diff "$settings" <(printf '%s\n' "$wanted") >&2 || true
    die "$work_dir was begun with other settings or another text (see above): give the same options, \
another $option, or remove that folder"
  fi
}

# check_then_run COMMAND...: runs the command twice, first with "checking" set, with which it must only look whether all can
# be done: what would stop the last of several long trainings is said before the first one.
check_then_run() {
  checking=yes
  "$@"
  checking=''
  "$@"
}

# require_pyplot: dies unless plots can be drawn.
require_pyplot() {
  python -c 'from fairseq_mega.reports.plotting import load_pyplot; load_pyplot()' || die "the plot at the end cannot be drawn (see above)"
}

# fail_with_log LOG WHAT: shows the last lines of a log and dies.
fail_with_log() {
  printf -- '--- the last lines of %s\n' "$1" >&2
  tail -n 20 "$1" >&2 || true
  printf -- '---\n' >&2
  die "$2 failed; its whole output is in $1. Start the same command again to go on from here"
}

# run_logged NAME COMMAND...: the output goes to "$work_dir/logs/NAME.log"; a failure shows its last lines.
run_logged() {
  local log_file=${work_dir:?run_logged needs work_dir}/logs/$1.log
  shift
  if ! "$@" >"$log_file" 2>&1; then
    fail_with_log "$log_file" "${1##*/}"
  fi
}
