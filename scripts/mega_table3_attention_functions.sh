#!/usr/bin/env bash
# MEGA, Table 3: attention functions on Text and Image; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lra.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lra.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/mega_table3_attention_functions.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Trains MEGA with softmax, squared-ReLU and Laplace attention on Text and Image, with the published recipes otherwise, and
prints the measured rows of Table 3 beside the paper's. The task's own function is what Table 2 trains, too.

  --task NAME       text, image or all (default: all)
  --functions LIST  of softmax, relu2, laplace (default: all three)
  --chunk C         attention chunk (default: -1, full attention, as in the paper)
HELP
  lra_help
}

functions=softmax,relu2,laplace
while [[ $# -gt 0 ]]; do
  case $1 in
    --functions) require_value "$@"; functions=$2; shift 2 ;;
    *) lra_option "$@"; shift "$taken" ;;
  esac
done
list_of --task "${task:=all}" text image all
[[ ,$task, != *,all,* ]] || task=text,image
list_of --functions "$functions" softmax relu2 laplace
for one in ${task//,/ }; do
  check_chunk --chunk "${chunk:=-1}" "$one"
done
# shellcheck disable=SC2086 # names
start_lra ${task//,/ }

cells() {
  local one one_function
  for one in "${tasks[@]}"; do
    for one_function in ${functions//,/ }; do
      run_mega "$one" "$one_function" 16 "$chunk"
    done
  done
}
check_then_run cells
python -m fairseq_mega.reports table3 "$results" --chunk "$chunk" ${smoke:+--smoke}
