# shellcheck shell=bash
# What the scripts prepare_*.sh share; to be sourced by a bash script that has set -euo pipefail.

# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

work_dir='' smoke='' skip_setup=''
workers=$(getconf _NPROCESSORS_ONLN)
venv=${FAIRSEQ_MEGA_VENV:-$repo_root/.venv}

# common_option "$@": takes the option that "$@" begins with, and sets "taken" to the number of words to shift.
# shellcheck disable=SC2034 # the caller shifts by "taken"
common_option() {
  taken=2
  case $1 in
    --out) require_value "$@"; work_dir=$2 ;;
    --workers) require_value "$@"; workers=$2 ;;
    --venv) require_value "$@"; venv=$2 ;;
    --skip-setup) skip_setup=yes; taken=1 ;;
    --smoke) smoke=yes; taken=1 ;;
    --help | -h) usage; exit 0 ;;
    *) die "unknown option '$1'; see --help" ;;
  esac
}

# common_help: the lines of --help on these options.
common_help() {
  cat <<'HELP'
  --workers N       processes (default: the number of cores)
  --venv DIR        virtual environment (default: $FAIRSEQ_MEGA_VENV, else .venv of the checkout)
  --skip-setup      take that environment as it is, instead of bringing it up to date with scripts/setup.sh
  --smoke           a little made-up text instead, in seconds
  --help            this text
HELP
}

# start_work SETTING...: the environment and the work folder. Stages done so far belong to these settings.
start_work() {
  whole_number --workers "$workers" 1
  if [[ ! $skip_setup ]]; then
    bash "$repo_root/scripts/setup.sh" --venv "$venv"
  fi
  FAIRSEQ_MEGA_VENV=$venv activate_venv
  require_command fairseq-preprocess "run 'bash scripts/setup.sh'"
  export PYTHONPATH="$repo_root${PYTHONPATH:+:$PYTHONPATH}" # python -m fairseq_mega.cli... from any folder
  export PYTHONWARNINGS=${PYTHONWARNINGS-ignore}
  mkdir -p "$work_dir/logs" || die "--out $work_dir cannot be made: give a folder you may write to"
  work_dir=$(cd "$work_dir" && pwd)
  local settings=$work_dir/settings wanted
  wanted=$(printf '%s\n' "$@" "smoke: ${smoke:-no}")
  if [[ ! -e $settings ]]; then
    printf '%s\n' "$wanted" >"$settings"
  elif [[ $wanted != "$(cat "$settings")" ]]; then
    diff "$settings" <(printf '%s\n' "$wanted") >&2 || true
    die "$work_dir was begun with other settings or another text (see above): give another --out, or remove that folder"
  fi
}

# threshold_of_unit DEFAULT: checks "threshold" against "unit" and fills it in; bytes are all kept.
# shellcheck disable=SC2154 # "unit" is the caller's
threshold_of_unit() {
  if [[ $unit == bytes ]]; then
    [[ -z $threshold ]] || die "--threshold is '$threshold', but --unit bytes keeps every byte: leave it out, or give --unit words"
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

# progress_of DIR: what fairseq-preprocess has written so far.
progress_of() {
  if [[ -e $1/dict.txt ]]; then
    printf '%s MB written' "$(du -sm "$1" | cut -f 1)"
  else
    printf 'counting the tokens of %s MB for the dictionary' "$(du -sm "$work_dir/text" | cut -f 1)"
  fi
}

# count_tokens [OPTION...]: asserts that nothing was lost, and writes work_dir/counts.json.
count_tokens() {
  python -m fairseq_mega.cli.prepare_text count --data "$work_dir/data-bin" --text "$work_dir/text" \
    --json "$work_dir/counts.json" "$@"
}

# finish: says what was made.
finish() {
  log "done: $work_dir/data-bin (counts: $work_dir/counts.json)"
  [[ ! $smoke ]] || log 'SMOKE RUN on made-up text: the numbers mean nothing'
}
