#!/usr/bin/env bash
# Trains a Transformer and a MEGA language model of equal size on the same text and scores both; see --help.
set -euo pipefail
# shellcheck source=scripts/comparison.sh
source "$(dirname "${BASH_SOURCE[0]}")/comparison.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/compare_language_models.sh --data DIR --out DIR [OPTION]...

Trains fairseq's transformer_lm and mega_lm, four layers of width 128 with equally many parameters, for the same number of
updates on the same number of tokens, with the same optimiser; then scores the test text: the Transformer with and
without a sliding context, MEGA over contexts of 1, 2, 8 and 32 chunks and over the whole text at once. Results
go to DIR/results as JSON, one file per number, and are printed as a table.

  --data DIR      folder of fairseq-preprocess with train, valid and test (scripts/prepare_*.sh make one)
  --unit KIND     words: adaptive tables (default); bytes: plain tied tables, for texts of decimal bytes
  --models LIST   of transformer, mega (default: both)
  --updates N     updates of each model (default: 1500)
HELP
  comparison_help
}

unit=words models=transformer,mega updates=1500
while [[ $# -gt 0 ]]; do
  case $1 in
    --unit) require_value "$@"; unit=$2; shift 2 ;;
    *) comparison_option "$@"; shift "$taken" ;;
  esac
done
one_of --unit "$unit" words bytes
check_comparison transformer mega
require_file "$data/dict.txt" "--data is a folder of fairseq-preprocess (scripts/prepare_wikitext103.sh --help)"
require_file "$data/test.bin" "--data needs train, valid and test (fairseq-preprocess --testpref)"
start_comparison "unit: $unit"

layers=4 width=128 values=256 ffn=576 chunk=128 block=480 batch=4096 warmup=$((updates / 15 + 1))
if [[ $smoke == yes ]]; then
  layers=1 width=16 values=32 ffn=64 chunk=16 block=60 batch=512 updates=4 warmup=2
fi

shared=(
  --optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-8 --weight-decay 0.01 --clip-norm 0.25 --dropout 0.1
  --lr "$lr" --lr-scheduler linear_decay --warmup-updates "$warmup" --total-num-update "$updates" --max-update "$updates"
  --seed "$seed" --num-workers 0 --log-format simple --log-interval 50 --no-epoch-checkpoints --keep-best-checkpoints 1
  --save-interval-updates 500 --keep-interval-updates 1
)
devices=(cuda)
if [[ $gpu == no ]]; then
  shared+=(--cpu)
  devices=(cpu)
fi
if [[ $unit == words ]]; then
  bands=2000,10000
  [[ $smoke == no ]] || bands=5,10
  shared+=(
    --criterion adaptive_loss --ddp-backend legacy_ddp --adaptive-input --adaptive-input-cutoff "$bands"
    --adaptive-softmax-cutoff "$bands" --tie-adaptive-weights --tie-adaptive-proj
  )
else
  shared+=(--criterion cross_entropy --share-decoder-input-output-embed)
fi

# Seven blocks of 480 tokens are as many tokens as MEGA's blocks of drawn lengths (256 to 768) fill on average.
train_transformer() {
  fairseq-mega-train "$data" --task language_modeling --arch transformer_lm --tokens-per-sample "$block" \
    --max-tokens $((7 * block)) --decoder-layers "$layers" --decoder-embed-dim "$width" --decoder-input-dim "$width" \
    --decoder-output-dim "$width" --decoder-ffn-embed-dim "$ffn" --decoder-attention-heads 4 \
    --decoder-normalize-before "${shared[@]}" --save-dir "$out/transformer"
}

train_mega() {
  fairseq-mega-train "$data" --task mega_language_modeling --arch mega_lm --max-tokens "$batch" \
    --decoder-layers "$layers" --decoder-embed-dim "$width" --decoder-hidden-dim "$values" --decoder-z-dim 64 \
    --decoder-n-dim 16 --decoder-chunk-size "$chunk" --normalize-before --no-affine-final-norm \
    --rel-pos-bias rotary --variant-block-multiple-min 2 --variant-block-multiple-max 6 "${shared[@]}" \
    --save-dir "$out/mega"
}

score() { # LABEL OPTION...
  local label=$1
  shift
  python -m fairseq_mega.cli.evaluate_lm "$data" --path "$out/$label/checkpoint_last.pt" --label "$label" \
    --benchmark compare-language-models --device "${devices[0]}" --output "$out/results" "$@"
}

score_transformer() {
  score transformer
  score transformer --context-window $((block / 2))
}

score_mega() {
  score mega --contexts "$chunk,$((2 * chunk)),$((8 * chunk)),$((32 * chunk))" --segments 1
}

for model in ${models//,/ }; do
  run_stage "train-$model" logged_training "$model" "train_$model"
  run_stage "score-$model" "score_$model"
done
python -m fairseq_mega.reports language-models "$out/results" --benchmark compare-language-models
