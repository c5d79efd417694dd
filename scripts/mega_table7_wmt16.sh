#!/usr/bin/env bash
# MEGA, Table 7: WMT'16 English-German from the archives to the scores; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

work_dir=$repo_root/outputs/wmt16 options=()
while [[ $# -gt 0 && $1 != -- ]]; do
  case $1 in
    --work-dir | --out) require_value "$@"; work_dir=$2; shift 2 ;;
    --data-dir) require_value "$@"; options+=(--archives "$2"); shift 2 ;;
    --smoke)
      [[ $work_dir != "$repo_root/outputs/wmt16" ]] || work_dir+=-smoke
      options=(--direction en-de --attention softmax --smoke ${options[@]+"${options[@]}"}) # unless told otherwise
      shift
      ;;
    *) options+=("$1"); shift ;;
  esac
done
reproduce mega/table7 wmt16 ${options[@]+"${options[@]}"} --out "$work_dir" --data "$work_dir" "$@" 3<<'HELP'
usage: bash scripts/mega_table7_wmt16.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Fetches and prepares the WMT'16 English-German data, trains MEGA base and the Transformer of the same size, averages
checkpoints, translates newstest2014 and prints the measured rows of Table 7 beside the paper's.

  --direction D      en-de, de-en or both (default: both)
  --models LIST      of mega-softmax, mega-laplace, transformer (default: all three)
  --attention A      of MEGA: softmax or laplace, then without the Transformer, or both (default: both)
  --average N        number of last epoch checkpoints to average (default: 5)
  --work-dir DIR     folder for everything made (default: outputs/wmt16 in the checkout; 40 GB)
  --data-dir DIR     folder that holds, or gets, the five archives (default: archives in the work folder)
  --no-download      refuse to download: all archives must be in --data-dir
  --results-dir DIR  folder for the JSON result files (default: results in the work folder)
  --processes N      processes for the text preparation (default: all cores)
HELP
