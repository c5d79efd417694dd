# shellcheck shell=bash
# Shared by the scripts prepare_*.sh of language models; to be sourced by a bash script that has set -euo pipefail.

# shellcheck source=scripts/work.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/work.sh"

# threshold_of_unit DEFAULT: checks "threshold" against "unit" and fills it in; bytes and subwords are all kept.
# shellcheck disable=SC2154 # "unit" is the caller's
threshold_of_unit() {
  if [[ $unit != words ]]; then
    [[ -z $threshold ]] || die "--threshold is '$threshold', but --unit $unit keeps every ${unit%s}: leave it out, or give --unit words"
    threshold=0
  fi
  : "${threshold:=$1}"
  whole_number --threshold "$threshold" 0
}

# binarise [FAIRSEQ_PREPROCESS_OPTION...]: work_dir/text becomes work_dir/data-bin, with a sign of life on stderr.
binarise() {
  local partial=$work_dir/data-bin.partial log_file=$work_dir/logs/preprocess.log begun child waited shown=0
  rm -rf "$partial" "$work_dir/data-bin"
  set -m # a process group of its own: fairseq's worker processes would outlive it, waiting for work
  # fairseq binarises one part itself, but only when its other processes have done theirs: hence one more.
  fairseq-preprocess --only-source --trainpref "$work_dir/text/train" --validpref "$work_dir/text/valid" \
    --testpref "$work_dir/text/test" --destdir "$partial" --workers $((workers > 1 ? workers + 1 : 1)) "$@" </dev/null >"$log_file" 2>&1 &
  child=$!
  set +m
  # shellcheck disable=SC2064 # the number of this child
  trap "kill -- -$child 2>/dev/null || true" EXIT INT TERM
  begun=$(date +%s)
  while kill -0 "$child" 2>/dev/null; do
    sleep 0.2
    waited=$(($(date +%s) - begun))
    if ((waited - shown >= 15)); then
      shown=$waited
      log "binarise: $(progress_of "$partial") ($waited s)"
    fi
  done
  wait "$child" || fail_with_log "$log_file" fairseq-preprocess
  trap - EXIT INT TERM
  mv "$partial" "$work_dir/data-bin"
}

# progress_of DIR: prints how far fairseq-preprocess has come.
progress_of() {
  if [[ -e $1/dict.txt ]]; then
    printf '%s MB written' "$(du -sm "$1" | cut -f 1)"
  else
    printf 'counting the tokens of %s MB for the dictionary' "$(du -sm "$work_dir/text" | cut -f 1)"
  fi
}

# count_tokens [OPTION...]: asserts that nothing was lost, and writes work_dir/counts.json.
count_tokens() {
  python -m fairseq_mega.corpora.language_modeling count --data "$work_dir/data-bin" --text "$work_dir/text" \
    --json "$work_dir/counts.json" "$@"
}

# finish: names the data and the counts.
finish() {
  log "done: $work_dir/data-bin (counts: $work_dir/counts.json)"
  [[ ! $smoke ]] || log 'SMOKE RUN on made-up text: the numbers mean nothing'
}
