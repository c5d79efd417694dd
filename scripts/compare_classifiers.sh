#!/usr/bin/env bash
# Trains small MEGA and Transformer classifiers of equal size on the same data and scores them; see --help.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/compare_classifiers.sh --task NAME --data DIR --out DIR [OPTION]...

The Long Range Arena in miniature, for a CPU: MEGA with attention in chunks, MEGA without its moving average (N = 0) and a
Transformer with full attention, four layers of width 64 with equally many parameters in MEGA's and the Transformer's
layers, are trained for the same number of updates on the same examples in the same order, with the same optimiser. Then
the checkpoint of best validation accuracy is scored on the test set. Results go to DIR/results as JSON, one file per
model, and are printed as a table.

  --task NAME     text, image or listops: what the data are
  --data DIR      folder made by fairseq-mega-prepare (imdb, help-pages; cifar10, fashion-mnist; listops)
  --out DIR       checkpoints, logs and results; the same command goes on where it was stopped
  --models LIST   of mega, mega-n0, transformer (default: all)
  --chunk C       MEGA's attention chunk (default: 128)
  --updates N     updates of each model (default: 1000)
  --batch N       examples per update (default: 64 for listops, 16 else)
  --lr RATE       peak of the learning rate of all models (default: 0.002)
  --seed N        (default: 1)
  --threads N     CPU threads (default: all cores)
  --gpu           train and score on the GPU
  --smoke         a few updates of tiny models, to see that it works
HELP
}

started="bash scripts/compare_classifiers.sh $*"
task='' data='' out='' models=mega,mega-n0,transformer chunk=128 updates=1000 batch='' lr=0.002 seed=1 threads='' gpu=no smoke=no
while [[ $# -gt 0 ]]; do
  case $1 in
    --task) require_value "$@"; task=$2; shift 2 ;;
    --data) require_value "$@"; data=$2; shift 2 ;;
    --out) require_value "$@"; out=$2; shift 2 ;;
    --models) require_value "$@"; models=$2; shift 2 ;;
    --chunk) require_value "$@"; chunk=$2; shift 2 ;;
    --updates) require_value "$@"; updates=$2; shift 2 ;;
    --batch) require_value "$@"; batch=$2; shift 2 ;;
    --lr) require_value "$@"; lr=$2; shift 2 ;;
    --seed) require_value "$@"; seed=$2; shift 2 ;;
    --threads) require_value "$@"; threads=$2; shift 2 ;;
    --gpu) gpu=yes; shift ;;
    --smoke) smoke=yes; shift ;;
    --help | -h) usage; exit 0 ;;
    *) die "unknown option '$1'; see --help" ;;
  esac
done
[[ -n $task && -n $data && -n $out ]] || die "--task, --data and --out are needed; see --help"
case $task in
  text) arch=imdb fairseq_task=lra-text batch=${batch:-16} ;;
  image) arch=cifar10 fairseq_task=lra-image batch=${batch:-16} ;;
  listops) arch=listop fairseq_task=lra-text batch=${batch:-64} ;;
  *) die "--task is '$task': choose from text, image, listops" ;;
esac
for number in "$updates" "$batch" "$seed" "$chunk" ${threads:+"$threads"}; do
  [[ $number =~ ^[1-9][0-9]*$ ]] || die "--updates, --batch, --seed, --chunk and --threads: '$number' is no whole number above 0"
done
for model in ${models//,/ }; do
  [[ $model =~ ^(mega|mega-n0|transformer)$ ]] || die "--models is '$models': choose from mega, mega-n0, transformer"
done
needed=src-bin/train.bin
[[ $task != image ]] || needed=input/train.src
require_file "$data/$needed" "--data is a folder of fairseq-mega-prepare for --task $task"
activate_venv
work_dir=$out
mkdir -p "$out/logs" "$out/results"
export OMP_NUM_THREADS=${threads:-$(nproc)} OMP_WAIT_POLICY=PASSIVE GOMP_SPINCOUNT=0 PYTHONWARNINGS=ignore

# The Transformer's FFN is as wide as makes its layers as large as MEGA's with N = 16.
layers=4 width=64 values=128 z=32 heads=4 ffn=336 warmup=$((updates / 10 + 1)) interval=$((updates / 10 + 1))
if [[ $smoke == yes ]]; then
  layers=1 width=16 values=16 z=8 heads=2 ffn=24 updates=4 warmup=2 interval=2
fi

shared=(
  --task "$fairseq_task" --criterion lra_cross_entropy --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-8
  --weight-decay 0.01 --clip-norm 1.0 --lr "$lr" --lr-scheduler linear_decay --warmup-updates "$warmup"
  --total-num-update "$updates" --max-update "$updates" --batch-size "$batch" --seed "$seed" --num-workers 0
  --encoder-layers "$layers" --encoder-embed-dim "$width" --classifier-out-dim $((2 * width))
  --log-format json --log-interval 20 --validate-interval-updates "$interval" --save-interval-updates "$interval"
  --keep-interval-updates 1 --no-epoch-checkpoints --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric
)
device=(--cpu)
[[ $gpu == no ]] || device=()
[[ $task != image || $(basename "$data") != cifar* ]] || shared+=(--pixel-normalization 0.48 0.24)
if [[ $task == image ]]; then
  classes=$(sort -u "$data/label/train.label" | wc -l)
else
  classes=$(grep -vc '^madeupword' "$data/label-bin/dict.txt")
fi
shared+=(--sentence-class-num "$classes")

train() { # MODEL
  local log_file=$out/logs/train-$1.log command=(fairseq-mega-train "$data" "${shared[@]}" "${device[@]}" --save-dir "$out/$1")
  if [[ $1 == transformer ]]; then
    command+=(--arch "transformer_lra_$arch" --encoder-ffn-embed-dim "$ffn" --encoder-attention-heads "$heads")
  else
    command+=(--arch "mega_lra_$arch" --encoder-hidden-dim "$values" --encoder-z-dim "$z" --encoder-chunk-size "$chunk")
    [[ $1 == mega ]] || command+=(--encoder-n-dim 0)
  fi
  printf '%q ' "${command[@]}" >"$out/logs/train-$1.command"
  python -m fairseq_mega.cli.lra_results train "${command[@]:1}" 2>&1 | tee -a "$log_file" |
    { grep --line-buffered -E '\| (train_inner|valid) \||rror' >&2 || true; } || fail_with_log "$log_file" "$1"
}

score() { # MODEL
  run_logged "score-$1" python -m fairseq_mega.cli.lra_results test "$data" --task "$fairseq_task" --path "$out/$1/checkpoint_best.pt" \
    --log "$out/logs/train-$1.log" --train-command "$out/logs/train-$1.command" --json "$out/results/$1.json" \
    --benchmark compare-classifiers --label "$1" --command "$started" --seed "$seed" --batch "$batch" --test-batch 50 \
    --early-epoch 1 --setting "task=$task" --setting "chunk=$chunk" --setting "lr=$lr" "${device[@]}"
}

for model in ${models//,/ }; do
  run_stage "train-$model" train "$model"
  run_stage "score-$model" score "$model"
done
python -m fairseq_mega.cli.classifier_table "$out/results"
