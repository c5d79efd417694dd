# shellcheck shell=bash
# Helpers shared by the scripts of this folder; to be sourced by a bash script that has set -euo pipefail.

shopt -s inherit_errexit 2>/dev/null || true # bash before 4.4 has no such option

repo_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
: "${FAIRSEQ_MEGA_STARTED:=$(date +%s)}"
export FAIRSEQ_MEGA_STARTED # scripts started by this one count the time from the same moment

# What one script compiles of this package, another one, and tests that build the package, need not compile again.
if [[ -w $repo_root ]]; then
  export FAIRSEQ_MEGA_OBJECTS=${FAIRSEQ_MEGA_OBJECTS:-$repo_root/build/objects}
fi

# The names of Python to try, the system's own first.
pythons=(python3 python3.13 python3.12 python3.11 python3.14 python)
python_remedy="Install one (Debian 12 and 13, Ubuntu 24.04: apt-get install python3 python3-venv python3-dev g++; with uv: uv python install 3.13, then bash scripts/setup.sh --python \"\$(uv python find 3.13)\")"

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

# require_command NAME REMEDY: dies with the remedy where the command is not installed.
require_command() {
  command -v "$1" >/dev/null 2>&1 || die "the command '$1' was not found: $2"
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
# environment up and runs the module in it, with the words that the check gives instead of these, if any. The variable
# "extras" names extras of setup.py.
start() {
  local module=$1 python checked venv='' skip_setup='' words
  for python in "${FAIRSEQ_MEGA_VENV:-$repo_root/.venv}/bin/python" "${pythons[@]}"; do
    "$python" -c '' 2>/dev/null && break
  done
  require_command "$python" "Python 3.11, 3.12, 3.13 or 3.14 is needed. $python_remedy"
  checked=$("$python" "$repo_root/scripts/check_options.py" "$@")
  if [[ $checked != venv=* ]]; then # --help
    printf '%s\n' "$checked"
    exit 0
  fi
  shift
  words=("$@")
  eval "$checked"
  : "${venv:=${FAIRSEQ_MEGA_VENV:-$repo_root/.venv}}"
  [[ -n $skip_setup ]] || bash "$repo_root/scripts/setup.sh" --venv "$venv" ${extras:+--extras "$extras"}
  FAIRSEQ_MEGA_VENV=$venv activate_venv
  require_command fairseq-mega-train "set the environment up with 'bash scripts/setup.sh', or omit --skip-setup"
  export PYTHONPATH="$repo_root${PYTHONPATH:+:$PYTHONPATH}" # python -m fairseq_mega... from any folder
  export PYTHONWARNINGS=${PYTHONWARNINGS-ignore}
  exec python -m "$module" ${words[@]+"${words[@]}"}
}

# reproduce FOLDER WORD...: runs fairseq-mega-reproduce with these words; its results are by default in outputs/FOLDER of
# the checkout. --help prints the comment at the top of the script first.
reproduce() {
  extras=translation,plots${extras:+,$extras} start fairseq_mega.lab.reproduce "$0" "$@"
}

# score_checkpoint COUNT WORD...: checks that COUNT files and folders come first, and activates the environment; --help
# prints the comment at the top of the script.
score_checkpoint() {
  local count=$1 word
  shift
  if [[ ${1-} == --help || ${1-} == -h ]]; then
    sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
    exit
  fi
  for word in "${@:1:count}"; do
    [[ $word != -* ]] || die "a file or folder is needed, found '$word'; see --help"
  done
  [[ $# -ge $count ]] || die "$count files and folders are needed, found $#; see --help"
  activate_venv
  export PYTHONPATH="$repo_root${PYTHONPATH:+:$PYTHONPATH}" # python -m fairseq_mega... from any folder
}

# smoke_weights OUT: trains a toy MEGALODON on invented text below OUT; "weights" are its checkpoint and its data.
smoke_weights() {
  bash "$repo_root/scripts/megalodon_table8_lm.sh" --skip-setup --smoke --out "$1/toy"
  # shellcheck disable=SC2034 # read by the scripts
  weights=("$1"/toy/runs/*/checkpoints/checkpoint_best.pt "$1"/toy/data/*/data-bin)
}
