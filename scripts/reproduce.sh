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

  --out DIR         folder of runs, results and tables
  --data DIR        data folder, one DIR/NAME for each of several data sets; missing data are prepared
  --seeds LIST      seeds of the training, separated by commas (default: the recipe's)
  --gpus N          number of GPUs for all runs together, 0 for the CPU (default: all visible); the batch of an update
                    is the published one in any case
  --max-update N    fewer updates than the paper's, with a schedule of this length
  --keep-schedule   with --max-update: the paper's schedule, stopped after N updates; a later run with a higher N continues
  --precision P     fp32, tf32, bf16 or fp16 (default: tf32 on GPUs, as in the paper's trainings, else fp32)
  --list | --print  list the recipes with their state, or print them as lines of fairseq-train
  --set GROUP.OPTION=VALUE
                    set an option of the recipes, for instance optimization.lr=0.002; NAME:GROUP.OPTION=VALUE sets it in
                    the recipes of this name only
  --venv DIR        virtual environment (default: $FAIRSEQ_MEGA_VENV, else .venv of the checkout)
  --skip-setup      use the environment as it is, without scripts/setup.sh
  --smoke           train toy models for a few updates on a little invented data, on the CPU
  --help            this text; fairseq-mega-reproduce --help lists every option

Options after -- are passed to fairseq-train; --set changes those that a recipe sets. The same command continues an
interrupted run.
HELP
}
