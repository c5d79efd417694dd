# shellcheck shell=bash
# shellcheck disable=SC2034 # options that only the scripts use
# What the comparisons of small MEGA and Transformer models on a CPU share; to be sourced by a bash script that has
# set -euo pipefail.

# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

data='' out='' models='' updates='' seed=1 lr=0.002 threads='' gpu=no smoke=no

# comparison_help: the lines of --help on the options that all these scripts have.
comparison_help() {
  cat <<'HELP'
  --out DIR       checkpoints, logs and results; the same command goes on where it was stopped
  --lr RATE       peak of the learning rate of all models (default: 0.002)
  --seed N        (default: 1)
  --threads N     CPU threads (default: all cores)
  --gpu           train and score on the GPU
  --smoke         a few updates of tiny models, to see that it works
  --help          this text
HELP
}

# comparison_option "$@": takes the option that "$@" begins with, and sets "taken" to the number of words to shift.
comparison_option() {
  taken=2
  case $1 in
    --data) require_value "$@"; data=$2 ;;
    --out) require_value "$@"; out=$2 ;;
    --models) require_value "$@"; models=$2 ;;
    --updates) require_value "$@"; updates=$2 ;;
    --seed) require_value "$@"; seed=$2 ;;
    --lr) require_value "$@"; lr=$2 ;;
    --threads) require_value "$@"; threads=$2 ;;
    --gpu) gpu=yes; taken=1 ;;
    --smoke) smoke=yes; taken=1 ;;
    --help | -h) usage; exit 0 ;;
    *) die "unknown option '$1'; see --help" ;;
  esac
}

# check_comparison MODEL...: dies unless the shared options are complete and name these models.
check_comparison() {
  [[ -n $data && -n $out ]] || die "--data and --out are needed; see --help"
  list_of --models "$models" "$@"
  whole_number --updates "$updates" 1
  whole_number --seed "$seed" 0
  [[ -z $threads ]] || whole_number --threads "$threads" 1
  [[ $lr =~ ^[0-9]*\.?[0-9]+([eE]-?[0-9]+)?$ ]] || die "--lr is '$lr': a positive number is needed, for instance 0.002"
}

# start_comparison SETTING...: the environment and the folders; what is in --out belongs to these settings and the shared ones.
start_comparison() {
  activate_venv
  work_dir=$out
  mkdir -p "$out/logs" "$out/results" || die "--out $out cannot be made: give a folder you may write to"
  keep_settings --out "data: $data" "updates: $updates" "lr: $lr" "seed: $seed" "gpu: $gpu" "smoke: $smoke" "$@"
  export OMP_NUM_THREADS=${threads:-$(nproc)} OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0 PYTHONWARNINGS=ignore
}

# logged_training NAME COMMAND...: shows the progress; the log of a training that is started again is added to, not replaced.
logged_training() {
  local log_file=$out/logs/train-$1.log name=$1
  shift
  "$@" 2>&1 | tee -a "$log_file" | { grep --line-buffered -E '\| (train_inner|valid) \||rror' >&2 || true; } ||
    fail_with_log "$log_file" "$name"
}
