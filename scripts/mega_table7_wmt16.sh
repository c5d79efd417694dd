#!/usr/bin/env bash
# MEGA, Table 7: WMT'16 English-German from the archives to the scores; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

work_dir=$repo_root/outputs/wmt16 options=() shown=''
while [[ $# -gt 0 && $1 != -- ]]; do
  case $1 in
    --work-dir | --out) require_value "$@"; work_dir=$2; shift 2 ;;
    --data-dir) require_value "$@"; options+=(--archives "$2"); shift 2 ;;
    --smoke)
      [[ $work_dir != "$repo_root/outputs/wmt16" ]] || work_dir+=-smoke
      [[ " $* ${options[*]-}" == *" --where"* ]] || options+=(--where direction=en-de --where name=mega_softmax)
      options+=(--smoke)
      shift
      ;;
    --print | --yaml) shown=yes; options+=("$1"); shift ;;
    *) options+=("$1"); shift ;;
  esac
done
[[ $shown ]] || options+=(--out "$work_dir" --data "$work_dir")
reproduce mega/table7 wmt16 ${options[@]+"${options[@]}"} "$@" 3<<'HELP'
usage: bash scripts/mega_table7_wmt16.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Downloads and prepares the WMT'16 English-German data, trains MEGA base and the Transformer of the same size, averages
checkpoints, translates newstest2014 and prints the measured rows of Table 7 beside the paper's.

  --where direction=LIST
                     en-de, de-en (default: both)
  --where name=LIST  mega_softmax, mega_laplace, transformer (default: all)
  --set evaluate.average=N
                     number of last epoch checkpoints to average (default: 5)
  --work-dir DIR     folder to write (default: outputs/wmt16 in the checkout; 40 GB)
  --data-dir DIR     folder of the five archives; missing ones are downloaded into it (default: archives in the work
                     folder)
  --no-download      fail if an archive is missing in --data-dir, instead of downloading it
  --results-dir DIR  folder for the JSON result files (default: results in the work folder)
  --processes N      number of processes that prepare the text (default: all cores)
HELP
