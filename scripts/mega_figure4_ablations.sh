#!/usr/bin/env bash
# MEGA, Figure 4: accuracy over the dimensions of the EMA and over the chunk; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lra.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lra.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/mega_figure4_ablations.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Trains MEGA on Text and Image with 0 to 32 dimensions N of the moving average (0: none), and with N = 16 in chunks of 16
to 512 and with full attention; prints the accuracies and plots both. N = 16 with full attention is what Table 2 trains.

  --task NAME       text, image or all (default: all)
  --dims LIST       N of the left panel (default: 0,1,2,4,8,16,32)
  --chunk C         chunk of the left panel (default: -1, full attention)
  --chunks LIST     C of the right panel (default: 16,32,64,128,256,512,-1)
  --output FILE     the plot (default: figure4.png in the folder of --out)
HELP
  lra_help
}

dims=0,1,2,4,8,16,32 chunks=16,32,64,128,256,512,-1 output='' needs_plot=yes
while [[ $# -gt 0 ]]; do
  case $1 in
    --dims) require_value "$@"; dims=$2; shift 2 ;;
    --chunks) require_value "$@"; chunks=$2; shift 2 ;;
    --output) require_value "$@"; output=$2; shift 2 ;;
    *) lra_option "$@"; shift "$taken" ;;
  esac
done
list_of --task "${task:=all}" text image all
[[ ,$task, != *,all,* ]] || task=text,image
[[ $dims =~ ^(0|[1-9][0-9]{0,3})(,(0|[1-9][0-9]{0,3}))*$ ]] ||
  die "--dims is '$dims': whole numbers separated by commas are needed, for instance 0,16"
for one in ${task//,/ }; do
  check_chunk --chunk "${chunk:=-1}" "$one"
  for one_chunk in ${chunks//,/ }; do
    check_chunk --chunks "$one_chunk" "$one"
  done
done
# shellcheck disable=SC2086 # names
start_lra ${task//,/ }

cells() {
  local one one_dims one_chunk
  for one in "${tasks[@]}"; do
    recipe "$one"
    for one_dims in ${dims//,/ }; do
      run_mega "$one" "$function" "$one_dims" "$chunk"
    done
    for one_chunk in ${chunks//,/ }; do
      run_mega "$one" "$function" 16 "$one_chunk"
    done
  done
}
check_then_run cells
python -m fairseq_mega.reports figure4 "$results" --chunk "$chunk" --output "${output:-$work_dir/figure4.png}" ${smoke:+--smoke}
