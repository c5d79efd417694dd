#!/usr/bin/env bash
# MEGA, Figure 5: Laplace against squared-ReLU attention on Pathfinder; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lra.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lra.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/mega_figure5_stability.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Trains MEGA with Laplace and with squared-ReLU attention on Pathfinder, and plots the validation accuracy of each seed over
the updates. The run with Laplace is what Table 2 trains.

  --task NAME       pathfinder (the only one)
  --functions LIST  of laplace, relu2, softmax (default: laplace,relu2)
  --chunk C         attention chunk (default: -1, full attention)
  --output FILE     the plot (default: figure5.png in the folder of --out)
HELP
  lra_help
}

functions=laplace,relu2 output='' needs_plot=yes
while [[ $# -gt 0 ]]; do
  case $1 in
    --functions) require_value "$@"; functions=$2; shift 2 ;;
    --output) require_value "$@"; output=$2; shift 2 ;;
    *) lra_option "$@"; shift "$taken" ;;
  esac
done
list_of --task "${task:=pathfinder}" pathfinder
list_of --functions "$functions" laplace relu2 softmax
check_chunk --chunk "${chunk:=-1}" pathfinder
start_lra pathfinder

cells() {
  local one_function
  for one_function in ${functions//,/ }; do
    run_mega pathfinder "$one_function" 16 "$chunk"
  done
}
check_then_run cells
python -m fairseq_mega.reports figure5 "$results" --chunk "$chunk" --output "${output:-$work_dir/figure5.png}" ${smoke:+--smoke}
