#!/usr/bin/env bash
# WikiText-103 (or WikiText-2) from the archive to binarised data; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lm_text.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lm_text.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/prepare_wikitext103.sh [OPTION]...

Makes DIR/data-bin (dict.txt and train, valid, test as .bin and .idx) of WikiText, for fairseq's language modelling.
Lines, tokens and the size of the dictionary must be the published ones. Finished stages are skipped when the same
command is given again. WikiText-103 should take 20 minutes on 2 cores, and 2 GB in DIR.

  --out DIR         folder for everything made (default: outputs/wikitext-103 or outputs/wikitext-2 in the checkout)
  --version V       103 or 2 (default: 103)
  --archive FILE    an own copy of wikitext-103-v1.zip or wikitext-2-v1.zip; its MD5 is checked
  --text DIR        instead: a folder with wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens, plain or .gz
HELP
  common_help
  cat <<'HELP'

The archives come from wikitext.smerity.com. Where it cannot be reached: the same text is mirrored as
Salesforce/wikitext on Hugging Face; this makes the files for --text of it (pip install datasets):

  import datasets
  for split, part in (("train", "train"), ("valid", "validation"), ("test", "test")):
      with open(f"wiki.{split}.tokens", "w", encoding="utf-8", newline="\n") as file:
          for row in datasets.load_dataset("Salesforce/wikitext", "wikitext-103-v1", split=part):
              file.write(row["text"].rstrip("\n") + "\n")
HELP
}

version=103 archive='' text=''
while [[ $# -gt 0 ]]; do
  case $1 in
    --version) require_value "$@"; version=$2; shift 2 ;;
    --archive) require_value "$@"; archive=$2; shift 2 ;;
    --text) require_value "$@"; text=$2; shift 2 ;;
    *) common_option "$@"; shift "$taken" ;;
  esac
done
one_of --version "$version" 103 2
corpus=wikitext-$version
[[ -z $smoke || -z $archive$text ]] || die "--smoke makes a text of its own: leave --archive and --text out"
[[ -z $archive || -z $text ]] || die "--archive and --text are two sources of the same text: give one of them"
[[ -z $archive ]] || require_file "$archive" "give a copy of $corpus-v1.zip"
[[ -z $text || -d $text ]] || die "--text is '$text': a folder with wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens is needed"
: "${work_dir:=$repo_root/outputs/$corpus${smoke:+-smoke}}"
start_work "corpus: $corpus"

obtain() {
  local source=(${archive:+--archive "$archive"} ${text:+--text "$text"})
  python -m fairseq_mega.corpora.language_modeling obtain --corpus "$corpus" --output "$work_dir/raw" --record "$work_dir/SOURCE.json" \
    ${source[@]+"${source[@]}"} ${smoke:+--smoke}
}

split() {
  local raw=$work_dir/raw/wiki
  python -m fairseq_mega.corpora.language_modeling split --unit words --train "$raw.train.tokens" --valid "$raw.valid.tokens" \
    --test "$raw.test.tokens" --output "$work_dir/text"
}

run_stage obtain obtain
run_stage split split
run_stage binarise binarise
published=(--corpus "$corpus")
[[ ! $smoke ]] || published=()
count_tokens ${published[@]+"${published[@]}"}
finish
