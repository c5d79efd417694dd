#!/usr/bin/env bash
# MEGA, Table 4: raw speech (SC10) from the recordings to the numbers; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lra.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lra.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/mega_table4_speech.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Prepares ten words of Speech Commands as 16,000 raw samples each, trains MEGA-chunk with the published recipe, scores it
on the test clips and prints the measured rows of Table 4 beside the paper's.

  --task NAME       speech (the only one)
  --models LIST     of base, big (default: both)
  --chunk C         attention chunk (default: 1000, as in the paper)
  --scaling HOW     samples divided by 32768 twice, as the published code does, or once (default: twice)
HELP
  lra_help
}

models=base,big
while [[ $# -gt 0 ]]; do
  case $1 in
    --models) require_value "$@"; models=$2; shift 2 ;;
    --scaling) require_value "$@"; scaling=$2; shift 2 ;;
    *) lra_option "$@"; shift "$taken" ;;
  esac
done
list_of --task "${task:=speech}" speech
list_of --models "$models" base big
one_of --scaling "$scaling" once twice
check_chunk --chunk "${chunk:=1000}" speech
start_lra speech

cells() {
  local one_model
  for one_model in ${models//,/ }; do
    run_mega speech laplace 16 "$chunk" "$one_model"
  done
}
check_then_run cells
python -m fairseq_mega.reports table4 "$results" --chunk "$chunk" ${smoke:+--smoke}
