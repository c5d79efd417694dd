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
  --data DIR        folder of the data, with several data sets one DIR/NAME each; what is not there is made
  --seeds LIST      seeds of the training, separated by commas (default: the recipe's)
  --gpus N          GPUs that the runs share, 0 for the CPU (default: all that are visible); an update always sees the
                    published batch
  --max-update N    fewer updates than the paper's, to which the rate decays
  --keep-schedule   with --max-update: the paper's schedule, stopped after N updates; a higher N goes on from there
  --precision P     fp32, tf32, bf16 or fp16 (default: tf32 on GPUs, as when the paper's were trained, else fp32)
  --list | --print  list the recipes with their state, or print them as lines of fairseq-train
  --set GROUP.OPTION=VALUE
                    another value of an option that the recipes have, for instance optimization.lr=0.002; NAME: in front
                    is for the recipes of that name alone
  --venv DIR        virtual environment (default: $FAIRSEQ_MEGA_VENV, else .venv of the checkout)
  --skip-setup      take that environment as it is, instead of bringing it up to date with scripts/setup.sh
  --smoke           toy models, a few updates, a little made-up data, on the CPU
  --help            this text; fairseq-mega-reproduce --help lists every option

Options after -- are added to fairseq-train; for those that a recipe sets there is --set. The same command given again goes on where it was stopped.
HELP
}
