#!/usr/bin/env bash
# MEGA, Table 2: the Long Range Arena from the data to the numbers; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lra.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lra.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/mega_table2_lra.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Prepares the data, trains MEGA, MEGA-chunk and a Transformer of equal size with the published recipes of the six tasks,
scores them on the test sets and prints the measured rows of Table 2 beside the paper's: mean, standard deviation and
number of seeds, and how many of them left chance. With Text among the tasks, speed and memory of training on 4K tokens
are measured beside the Transformer's.

  --task NAME       listops, text, retrieval, image, pathfinder, pathx, a list of them, or all (default: all)
  --models LIST     of mega, mega-chunk, transformer (default: all three)
  --chunk C         chunk of mega-chunk (default: 128, Path-X 4096); -1 leaves it out, for full attention only
  --transformer-lr RATE
                    peak rate of the Transformer, whose settings the paper does not give (default: 0.001; else its recipe
                    is MEGA's)
  --no-speed        do not measure speed and memory
HELP
  lra_help
}

models=mega,mega-chunk,transformer transformer_lr=0.001 no_speed=''
while [[ $# -gt 0 ]]; do
  case $1 in
    --models) require_value "$@"; models=$2; shift 2 ;;
    --transformer-lr) require_value "$@"; transformer_lr=$2; shift 2 ;;
    --no-speed) no_speed=yes; shift ;;
    *) lra_option "$@"; shift "$taken" ;;
  esac
done
all=(listops text retrieval image pathfinder pathx)
list_of --task "${task:=all}" "${all[@]}" all
list_of --models "$models" mega mega-chunk transformer
[[ $transformer_lr =~ ^[0-9]*\.?[0-9]+(e-?[0-9]+)?$ ]] || die "--transformer-lr is '$transformer_lr': a number is needed"
[[ ,$task, != *,all,* ]] || task=$(IFS=,; echo "${all[*]}")
[[ -z $chunk || $chunk != -1 || ,$models, == *,mega,* || ,$models, == *,transformer,* ]] ||
  die "--chunk is -1, which leaves mega-chunk out, and --models names nothing else"
for one in ${task//,/ }; do
  [[ -z $chunk ]] || check_chunk --chunk "$chunk" "$one"
done
# shellcheck disable=SC2086 # names
start_lra ${task//,/ }

cells() {
  local one one_model
  for one in "${tasks[@]}"; do
    for one_model in ${models//,/ }; do
      recipe "$one"
      case $one_model in
        mega) run_mega "$one" "$function" 16 -1 ;;
        mega-chunk) [[ $chunk == -1 ]] || run_mega "$one" "$function" 16 "${chunk:-$paper_chunk}" ;;
        transformer) run_transformer "$one" "$transformer_lr" ;;
      esac
    done
  done
}
check_then_run cells

measure_speed() {
  local where=cuda
  ((gpus > 0)) || where=cpu
  python -m fairseq_mega.benchmarks lra-speed --length 4096 --json "$work_dir/speed.json" --device "$where" >&2
}
if [[ ,$task, == *,text,* && ! $no_speed && ! $smoke ]]; then
  run_stage speed measure_speed
fi
speed=()
[[ ! -e $work_dir/speed.json ]] || speed=(--speed "$work_dir/speed.json")
python -m fairseq_mega.reports table2 "$results" ${speed[@]+"${speed[@]}"} ${smoke:+--smoke}
