#!/usr/bin/env bash
# Your own text to binarised data for language modelling; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lm_text.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lm_text.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/prepare_text_lm.sh --train FILE [OPTION]...

Makes DIR/data-bin (dict.txt and train, valid, test as .bin and .idx) of your own text, for fairseq's language
modelling. Finished stages are skipped when the same command is given again.

  --train FILE      the text to learn from
  --valid FILE      validation text (default: evenly spaced blocks of lines held out of --train)
  --test FILE       test text (default: the same)
  --unit U          words (UTF-8, cut at white space), subwords (pieces of words, learnt from train)
                    or bytes (every byte a token, any file) (default: words)
  --vocab-size N    subwords: how many to learn (default: 8000)
  --threshold N     words: those seen fewer than N times in train become <unk> (default: 2)
  --held-out SHARE  share of --train for valid and for test, if held out (default: 0.05)
  --blocks N        number of blocks that give a part of each (default: 20; 1: the end of the text)
  --out DIR         folder for everything made (default: outputs/text in the checkout)
HELP
  common_help
}

train='' valid='' test='' unit=words vocabulary_size='' threshold='' held_out=0.05 blocks=20
while [[ $# -gt 0 ]]; do
  case $1 in
    --train) require_value "$@"; train=$2; shift 2 ;;
    --valid) require_value "$@"; valid=$2; shift 2 ;;
    --test) require_value "$@"; test=$2; shift 2 ;;
    --unit) require_value "$@"; unit=$2; shift 2 ;;
    --vocab-size) require_value "$@"; vocabulary_size=$2; shift 2 ;;
    --threshold) require_value "$@"; threshold=$2; shift 2 ;;
    --held-out) require_value "$@"; held_out=$2; shift 2 ;;
    --blocks) require_value "$@"; blocks=$2; shift 2 ;;
    *) common_option "$@"; shift "$taken" ;;
  esac
done
one_of --unit "$unit" words subwords bytes
[[ -z $vocabulary_size || $unit == subwords ]] || die "--vocab-size is '$vocabulary_size', but only subwords are learnt: give --unit subwords"
threshold_of_unit 2
: "${work_dir:=$repo_root/outputs/text${smoke:+-smoke}}"
whole_number --blocks "$blocks" 1
whole_number --vocab-size "${vocabulary_size:=8000}" 1
[[ $held_out =~ ^0?\.[0-9]+$ ]] || die "--held-out is '$held_out': a share between 0 and 1 is needed, for instance 0.05"
[[ -z $smoke || -z $train$valid$test ]] || die "--smoke makes a text of its own: leave --train, --valid and --test out"
[[ -n $train || -n $smoke ]] || die "--train is missing: give the text to learn from; see --help"
for file in "$train" "$valid" "$test"; do
  [[ -z $file ]] || require_file "$file" "give a text file"
done
checksums=$(for file in "$train" "$valid" "$test"; do
  if [[ -n $file ]]; then cksum <"$file"; else echo none; fi
done)
[[ $unit != subwords ]] || unit_setting="subwords, $vocabulary_size"
start_work "unit: ${unit_setting:-$unit}" "threshold: $threshold" "held out: $held_out in $blocks blocks" "texts: ${checksums//$'\n'/, }"
[[ ! $smoke ]] || train=$work_dir/raw/own.txt

split() {
  python -m fairseq_mega.corpora.language_modeling split --unit "$unit" --vocab-size "$vocabulary_size" --train "$train" \
    ${valid:+--valid "$valid"} ${test:+--test "$test"} --held-out "$held_out" --blocks "$blocks" --output "$work_dir/text" ${smoke:+--smoke}
}

run_stage split split
run_stage binarise binarise --thresholdsrc "$threshold"
count_tokens --threshold "$threshold"
finish
