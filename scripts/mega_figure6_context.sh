#!/usr/bin/env bash
# MEGA, Figure 6: perplexity over the context and over the chunk size; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/mega_figure6_context.sh [OPTION]...

Scores WikiText-103's test text with one trained model: in K = 100, 75, 50, 25, 15, 10 and 5 segments at chunk 2048 (the
fewer, the longer the context), and in 10 segments at chunks of 512 to 3072; writes JSON results and a plot of both. Without
--path the model is trained first, with scripts/mega_table5_lm.sh. Scores that are there already are not repeated.

  --work-dir DIR     as of mega_table5_lm.sh (default: outputs/table5 in the checkout)
  --data-dir DIR     as of mega_table5_lm.sh (default: outputs in the checkout)
  --seed N           seed of the training (default: 1)
  --max-update N     updates of the training (default: 400000)
  --path FILE        a trained checkpoint instead
  --data DIR         its folder of fairseq-preprocess (needed with --path)
  --segments LIST    K of the left panel (default: 100,75,50,25,15,10,5)
  --chunk N          chunk of the left panel (default: 2048)
  --chunks LIST      chunks of the right panel (default: 512,1024,1536,2048,2560,3072)
  --right-segments K segments of the right panel (default: 10)
  --results-dir DIR  folder for result files and figure6.png (default: figure6 in the work folder)
  --gpus N           GPUs of the training, 0 for the CPU (default: all that are visible)
  --venv DIR         virtual environment (default: $FAIRSEQ_MEGA_VENV, else .venv in the checkout)
  --skip-setup       take that environment as it is
  --smoke            a toy model on a little made-up text, on the CPU
  --help             this text
HELP
}

work_dir='' path='' data='' segments='' chunk='' chunks='' right_segments='' results_dir='' gpus='' smoke=''
data_dir='' seed=1 max_update=''
skip_setup=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --work-dir) require_value "$@"; work_dir=$2; shift 2 ;;
    --data-dir) require_value "$@"; data_dir=$2; shift 2 ;;
    --seed) require_value "$@"; seed=$2; shift 2 ;;
    --max-update) require_value "$@"; max_update=$2; shift 2 ;;
    --path) require_value "$@"; path=$2; shift 2 ;;
    --data) require_value "$@"; data=$2; shift 2 ;;
    --segments) require_value "$@"; segments=$2; shift 2 ;;
    --chunk) require_value "$@"; chunk=$2; shift 2 ;;
    --chunks) require_value "$@"; chunks=$2; shift 2 ;;
    --right-segments) require_value "$@"; right_segments=$2; shift 2 ;;
    --results-dir) require_value "$@"; results_dir=$2; shift 2 ;;
    --gpus) require_value "$@"; gpus=$2; shift 2 ;;
    --venv) require_value "$@"; export FAIRSEQ_MEGA_VENV=$2; shift 2 ;;
    --skip-setup) skip_setup=(--skip-setup); shift ;;
    --smoke) smoke=yes; shift ;;
    --help | -h) usage; exit 0 ;;
    *) die "unknown option '$1'; see --help" ;;
  esac
done
: "${work_dir:=$repo_root/outputs/table5${smoke:+-smoke}}"
if [[ $smoke ]]; then
  : "${segments:=20,4,1}" "${chunk:=16}" "${chunks:=8,16,32}" "${right_segments:=2}"
fi
: "${segments:=100,75,50,25,15,10,5}" "${chunk:=2048}" "${chunks:=512,1024,1536,2048,2560,3072}" "${right_segments:=10}"
: "${results_dir:=$work_dir/figure6}"
[[ ! $smoke ]] || : "${data_dir:=$work_dir/data}"
: "${data_dir:=$repo_root/outputs}"
if [[ -n $path ]]; then
  require_file "$path" "--path names a checkpoint; without it the model is trained first"
  [[ -n $data ]] || die "--path needs --data, the folder of fairseq-preprocess that the checkpoint was trained on"
  label=mega
else
  label=mega.seed$seed
fi
[[ ${#skip_setup[@]} -gt 0 ]] || bash "$repo_root/scripts/setup.sh" --extras translation,plots
activate_venv
require_pyplot
if [[ -z $path ]]; then
  bash "$repo_root/scripts/mega_table5_lm.sh" --task wikitext103 --work-dir "$work_dir" --data-dir "$data_dir" --only-train \
    --skip-setup --seed "$seed" ${max_update:+--max-update "$max_update"} ${gpus:+--gpus "$gpus"} ${smoke:+--smoke}
  path=$work_dir/runs/wikitext103.seed$seed/checkpoints/checkpoint_best.pt data=$data_dir/wikitext-103/data-bin
fi

score() {
  python -m fairseq_mega.cli.evaluate_lm "$data" --path "$path" --label "$label" --benchmark figure6 --output "$results_dir" \
    --chunk-nums 2 "$@"
}
score --segments "$segments" --chunk-size "$chunk"
score --segments "$right_segments" --chunk-size "$chunks"
python -m fairseq_mega.reports figure6 "$results_dir" --benchmark figure6 --label "$label" --chunk "$chunk" --segments "$right_segments" \
  --output "$results_dir/figure6.png"
