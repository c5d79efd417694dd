#!/usr/bin/env bash
# 40 MB of English from a Debian package, as bytes or words, to binarised data; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lm_text.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lm_text.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/prepare_gcide.sh [OPTION]...

Makes DIR/data-bin (dict.txt and train, valid, test as .bin and .idx) of the Collaborative International Dictionary of
English, which the Debian package dict-gcide holds (GPL-2+). It stands in for enwik8 and WikiText-103 where these
cannot be had. The text is alphabetical, so valid and test are taken from 20 evenly spaced blocks of it (90, 5 and 5 %
of every block). Finished stages are skipped when the same command is given again. Takes about six minutes on 2 cores,
and 400 MB.

  --out DIR         folder for everything made (default: outputs/gcide-UNIT in the checkout)
  --unit U          bytes (like enwik8: every byte a token, the line feed is </s>) or words (between white space)
                    (default: bytes)
  --threshold N     words: those seen fewer than N times in train become <unk> (default: 5)
  --blocks N        number of blocks (default: 20)
  --limit BYTES     use so many bytes only, in equal parts from all blocks (default: all)
  --deb FILE        an own copy of the package (default: fetched with apt-get download)
HELP
  common_help
}

unit=bytes threshold='' blocks=20 limit='' deb=''
while [[ $# -gt 0 ]]; do
  case $1 in
    --unit) require_value "$@"; unit=$2; shift 2 ;;
    --threshold) require_value "$@"; threshold=$2; shift 2 ;;
    --blocks) require_value "$@"; blocks=$2; shift 2 ;;
    --limit) require_value "$@"; limit=$2; shift 2 ;;
    --deb) require_value "$@"; deb=$2; shift 2 ;;
    *) common_option "$@"; shift "$taken" ;;
  esac
done
one_of --unit "$unit" bytes words
threshold_of_unit 5
: "${work_dir:=$repo_root/outputs/gcide-$unit${smoke:+-smoke}}"
whole_number --blocks "$blocks" 1
[[ -z $limit ]] || whole_number --limit "$limit" 1
[[ -z $smoke || -z $deb ]] || die "--smoke makes a text of its own: leave --deb out"
[[ -z $deb ]] || require_file "$deb" "give a copy of dict-gcide_VERSION_all.deb"
start_work "unit: $unit" "threshold: $threshold" "blocks: $blocks" "limit: ${limit:-none}"

obtain() {
  local raw=$work_dir/raw found version package=()
  local dictionary=$raw/gcide.dict.dz
  if [[ ! $smoke ]]; then
    rm -rf "$raw/unpacked"
    found=$(python -m fairseq_mega.corpora.debian dict-gcide --packages "$raw" --into "$raw/unpacked" ${deb:+--deb "$deb"})
    IFS=$'\t' read -r _ deb version <<<"$found"
    dictionary=$raw/unpacked/usr/share/dictd/gcide.dict.dz
    require_file "$dictionary" "$deb is another package than dict-gcide, or of another make (tested: 0.48.5+nmu2)"
    package=(--package "$deb" --version "$version")
  fi
  python -m fairseq_mega.corpora.language_modeling dictionary --dictionary "$dictionary" --output "$raw/gcide.txt" \
    --record "$work_dir/SOURCE.json" ${smoke:+--smoke} ${package[@]+"${package[@]}"}
}

split() {
  python -m fairseq_mega.corpora.language_modeling split --unit "$unit" --train "$work_dir/raw/gcide.txt" --blocks "$blocks" \
    ${limit:+--limit "$limit"} --replace-invalid --output "$work_dir/text"
}

run_stage obtain obtain
run_stage split split
run_stage binarise binarise --thresholdsrc "$threshold"
count_tokens --threshold "$threshold"
finish
