#!/usr/bin/env bash
# enwik8 as bytes, from the archive to binarised data; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lm_text.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lm_text.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/prepare_enwik8.sh [OPTION]...

Makes DIR/data-bin (dict.txt and train, valid, test as .bin and .idx) of the first 90, next 5 and last 5 million bytes
of enwik8. Every byte is a token, its decimal number; the line feed ends a line and becomes </s>. So a split has as
many tokens as bytes, and bits per token are bits per character. A split that does not end in a line feed gets one
token more, the </s> that fairseq appends to its unfinished last line: this is counted, and checked, as bytes + 1.
Finished stages are skipped when the same command is given again. Should take a quarter of an hour on 2 cores, and 800 MB.

  --out DIR         folder for everything made (default: outputs/enwik8 in the checkout)
  --archive FILE    an own copy of enwik8.zip, or of enwik8 itself; size, MD5 and SHA-1 are checked
HELP
  common_help
}

archive=''
while [[ $# -gt 0 ]]; do
  case $1 in
    --archive) require_value "$@"; archive=$2; shift 2 ;;
    *) common_option "$@"; shift "$taken" ;;
  esac
done
[[ -z $smoke || -z $archive ]] || die "--smoke makes a text of its own: leave --archive out"
[[ -z $archive ]] || require_file "$archive" "give a copy of enwik8.zip, or of enwik8 itself"
: "${work_dir:=$repo_root/outputs/enwik8${smoke:+-smoke}}"
sizes=90000000,5000000,5000000
[[ ! $smoke ]] || sizes=18000,1000,1000
start_work "corpus: enwik8" "sizes: $sizes"

obtain() {
  python -m fairseq_mega.corpora.language_modeling obtain --corpus enwik8 --output "$work_dir/raw" --record "$work_dir/SOURCE.json" \
    ${archive:+--archive "$archive"} ${smoke:+--smoke}
}

split() {
  python -m fairseq_mega.corpora.language_modeling split --unit bytes --train "$work_dir/raw/enwik8" --sizes "$sizes" --output "$work_dir/text"
}

run_stage obtain obtain
run_stage split split
run_stage binarise binarise
count_tokens --threshold 0
finish
