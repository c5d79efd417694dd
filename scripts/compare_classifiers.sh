#!/usr/bin/env bash
# Trains small MEGA and Transformer classifiers of equal size on the same data and scores them; see --help.
set -euo pipefail
# shellcheck source=scripts/comparison.sh
source "$(dirname "${BASH_SOURCE[0]}")/comparison.sh"

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
  --models LIST   of mega, mega-n0, transformer (default: all)
  --chunk C       MEGA's attention chunk (default: 128)
  --updates N     updates of each model (default: 1000)
  --batch N       examples per update (default: 64 for listops, 16 else)
HELP
  comparison_help
}

started="bash scripts/compare_classifiers.sh $*"
task='' chunk=128 batch='' models=mega,mega-n0,transformer updates=1000
while [[ $# -gt 0 ]]; do
  case $1 in
    --task) require_value "$@"; task=$2; shift 2 ;;
    --chunk) require_value "$@"; chunk=$2; shift 2 ;;
    --batch) require_value "$@"; batch=$2; shift 2 ;;
    *) comparison_option "$@"; shift "$taken" ;;
  esac
done
one_of --task "$task" text image listops
check_comparison mega mega-n0 transformer
whole_number --chunk "$chunk" 1
case $task in
  text) arch=imdb fairseq_task=lra-text batch=${batch:-16} ;;
  image) arch=cifar10 fairseq_task=lra-image batch=${batch:-16} ;;
  listops) arch=listop fairseq_task=lra-text batch=${batch:-64} ;;
esac
whole_number --batch "$batch" 1
needed=src-bin/train.bin
[[ $task != image ]] || needed=input/train.src
require_file "$data/$needed" "--data is a folder of fairseq-mega-prepare for --task $task"
start_comparison "task: $task" "chunk: $chunk" "batch: $batch"

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
  local command=(fairseq-mega-train "$data" "${shared[@]}" "${device[@]}" --save-dir "$out/$1")
  if [[ $1 == transformer ]]; then
    command+=(--arch "transformer_lra_matched_$arch" --encoder-ffn-embed-dim "$ffn" --encoder-attention-heads "$heads")
  else
    command+=(--arch "mega_lra_$arch" --encoder-hidden-dim "$values" --encoder-z-dim "$z" --encoder-chunk-size "$chunk")
    [[ $1 == mega ]] || command+=(--encoder-n-dim 0)
  fi
  printf '%q ' "${command[@]}" >"$out/logs/train-$1.command"
  logged_training "$1" python -m fairseq_mega.cli.lra_results train "${command[@]:1}"
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
python -m fairseq_mega.reports classifiers "$out/results"
