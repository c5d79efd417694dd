#!/usr/bin/env bash
# Trains a MEGA translator on real text from nothing, scores it, and says how to use it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

# What is trained
arch=mega_tiny
model_options=(--encoder-embed-dim 256 --encoder-hidden-dim 512 --encoder-ffn-embed-dim 384 --encoder-z-dim 64
  --encoder-n-dim 16 --encoder-layers 3 --decoder-layers 3 --normalize-before --dropout 0.05)
vocabulary_size=4000
max_tokens=1200
learning_rate=2e-3
warmup_updates=200
save_updates=200 # updates between validations, each with a checkpoint
updates_cpu=1500 # as many as 2 CPU cores manage in the default time, or fewer
updates_gpu=4000
train_minutes=13
beam=5
seed=1

usage() {
  cat <<USAGE
usage: bash scripts/quickstart.sh [OPTION]...

Sets up a virtual environment, fetches real English-German text (LibreOffice help), trains a MEGA translator, translates
a held-out test set, and prints the sacreBLEU score, examples and the line to type for interactive translation.
About 20 minutes on 2 CPU cores; on a GPU it uses the GPU. Finished stages are skipped when it is started again.

  --work-dir DIR        folder for everything made (default: outputs/quickstart in the checkout)
  --text PREFIX         learn from your own text: files PREFIX.SOURCE and PREFIX.TARGET, one sentence per line
  --valid PREFIX        your validation text (default: held out from the end of --text)
  --test PREFIX         your test text (default: held out from the end of --text)
  --source-lang LANG    ending of the source files (default: en)
  --target-lang LANG    ending of the target files (default: de)
  --packages DIR        folder that holds, or gets, the two LibreOffice help packages (default: in the work folder)
  --train-minutes N     time limit of the training (default: $train_minutes)
  --updates N           train exactly N updates, whatever the speed of the machine (the time limit still holds)
  --venv DIR            virtual environment (default: \$FAIRSEQ_MEGA_VENV, else .venv in the checkout)
  --skip-setup          take that environment as it is, instead of bringing it up to date with scripts/setup.sh
  --cpu                 use no GPU
  --smoke               run every stage on a little of the text with a toy model, in under two minutes
  --help                show this text
USAGE
}

work_dir=$repo_root/outputs/quickstart
text='' valid='' test='' source_lang=en target_lang=de packages=''
updates='' smoke='' force_cpu='' skip_setup=''
venv=${FAIRSEQ_MEGA_VENV:-$repo_root/.venv}
command_line="bash scripts/quickstart.sh${*:+ $*}"
while [[ $# -gt 0 ]]; do
  case $1 in
    --work-dir) require_value "$@" && work_dir=$2 && shift 2 ;;
    --text) require_value "$@" && text=$2 && shift 2 ;;
    --valid) require_value "$@" && valid=$2 && shift 2 ;;
    --test) require_value "$@" && test=$2 && shift 2 ;;
    --source-lang) require_value "$@" && source_lang=$2 && shift 2 ;;
    --target-lang) require_value "$@" && target_lang=$2 && shift 2 ;;
    --packages) require_value "$@" && packages=$2 && shift 2 ;;
    --train-minutes) require_value "$@" && train_minutes=$2 && shift 2 ;;
    --updates) require_value "$@" && updates=$2 && shift 2 ;;
    --venv) require_value "$@" && venv=$2 && shift 2 ;;
    --skip-setup) skip_setup=yes && shift ;;
    --cpu) force_cpu=yes && shift ;;
    --smoke) smoke=yes && shift ;;
    --help | -h) usage && exit 0 ;;
    *) die "unknown option '$1'; see --help" ;;
  esac
done

if [[ -n $smoke ]]; then
  model_options=(--encoder-layers 1 --decoder-layers 1)
  vocabulary_size=400
  max_tokens=1000
  warmup_updates=5
  train_minutes=1
  save_updates=10
  updates=${updates:-20}
  beam=2
fi

# --- Options that cannot work are refused before anything is fetched or installed

check_options() {
  [[ $train_minutes =~ ^[0-9]+(\.[0-9]+)?$ && ! $train_minutes =~ ^0+(\.0+)?$ ]] ||
    die "--train-minutes is '$train_minutes'; give a number of minutes above 0"
  [[ -z $updates || $updates =~ ^[1-9][0-9]*$ ]] || die "--updates is '$updates'; give a whole number above 0"
  [[ $source_lang != "$target_lang" ]] || die "--source-lang and --target-lang are both '$source_lang'; they must differ"
  if [[ -z $text ]]; then
    [[ -z $valid && -z $test ]] || die "--valid and --test need --text PREFIX, the text to learn from"
    [[ $source_lang == en && $target_lang == de ]] ||
      die "the LibreOffice help is read as en to de, not $source_lang to $target_lang; give your own text with --text PREFIX"
  fi
  local prefix lang
  for prefix in "$text" "$valid" "$test"; do
    [[ -n $prefix ]] || continue
    for lang in "$source_lang" "$target_lang"; do
      require_file "$prefix.$lang" "a text prefix P stands for the files P.$source_lang and P.$target_lang, one sentence per line"
    done
  done
}

absolute() { # the path of an existing or future file, whatever folder a later command runs in
  case $1 in
    /*) printf '%s' "$1" ;;
    *) printf '%s' "$PWD/$1" ;;
  esac
}

# The stages done so far belong to these settings; others need a folder of their own.
check_settings() {
  local prefix settings=(
    "languages $source_lang $target_lang" "arch $arch ${model_options[*]-}" "vocabulary $vocabulary_size"
    "updates ${updates:-by time}" "minutes $train_minutes" "smoke ${smoke:-no}" "seed $seed"
  )
  for prefix in "$text" "$valid" "$test"; do
    [[ -z $prefix ]] || settings+=("$(cat "$prefix.$source_lang" "$prefix.$target_lang" | cksum)")
  done
  keep_settings --work-dir "${settings[@]}"
}

# --- Stages

without_apt="Use your own text instead, on any system: --text PREFIX (files PREFIX.$source_lang and PREFIX.$target_lang)"
help_packages=(libreoffice-help-en-us libreoffice-help-de)

# Setting the environment up takes minutes: a missing command is better told before.
require_packages() {
  local name
  require_command dpkg-deb "it unpacks the LibreOffice help packages of Debian and Ubuntu. $without_apt"
  for name in "${help_packages[@]}"; do
    compgen -G "$packages/${name}_*.deb" >/dev/null || require_command apt-get "it fetches $name on Debian and Ubuntu. $without_apt"
  done
}

fetch_help() {
  local name version found
  rm -rf "$work_dir/help.partial"
  found=$(python -m fairseq_mega.corpora.debian "${help_packages[@]}" --packages "$packages" --into "$work_dir/help.partial" \
    --otherwise "$without_apt")
  while IFS=$'\t' read -r name _ version; do
    printf '%s %s (%s)\n' "$name" "$version" "MPL-2.0"
  done <<<"$found" | tee "$work_dir/help.partial/versions" >&2
  rm -rf "$work_dir/help"
  mv "$work_dir/help.partial" "$work_dir/help"
}

prepare_text() {
  local limit=()
  [[ -z $smoke ]] || limit=(--limit 400)
  if [[ -z $text ]]; then
    python -m fairseq_mega.corpora.translation help-pages --packages "$work_dir/help" --output "$work_dir/text" ${limit[@]+"${limit[@]}"}
  else
    python -m fairseq_mega.corpora.translation own-text --text "$text" ${valid:+--valid "$valid"} ${test:+--test "$test"} \
      --source-lang "$source_lang" --target-lang "$target_lang" --output "$work_dir/text" ${limit[@]+"${limit[@]}"}
  fi >&2
}

learn_subwords() {
  python -m fairseq_mega.corpora.translation subwords --text "$work_dir/text" --output "$work_dir/pieces" --vocab-size "$vocabulary_size" \
    --source-lang "$source_lang" --target-lang "$target_lang" >&2
}

binarise() {
  rm -rf "$work_dir/data-bin"
  run_logged binarise fairseq-preprocess --source-lang "$source_lang" --target-lang "$target_lang" --joined-dictionary \
    --trainpref "$work_dir/pieces/train" --validpref "$work_dir/pieces/valid" --testpref "$work_dir/pieces/test" \
    --destdir "$work_dir/data-bin"
}

# The training command, without the number of updates and where to save.
train_command() {
  train=(
    fairseq-mega-train "$work_dir/data-bin" --source-lang "$source_lang" --target-lang "$target_lang"
    --arch "$arch" ${model_options[@]+"${model_options[@]}"} --share-all-embeddings
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 1.0 --lr "$learning_rate"
    --max-tokens "$max_tokens" --required-batch-size-multiple 1 --num-workers 0
    --skip-invalid-size-inputs-valid-test --seed "$seed" --log-format json ${device[@]+"${device[@]}"}
  )
}

schedule() { # schedule UPDATES: warm up, then fall to 0 at the last update
  lr_schedule=(
    --lr-scheduler linear_decay --warmup-updates "$(($1 < 4 * warmup_updates ? ($1 + 3) / 4 : warmup_updates))"
    --warmup-init-lr 1e-7 --total-num-update "$1" --end-learning-rate 0.0 --max-update "$1"
  )
}

# The learning rate must reach its end within the time limit, so a slow machine gets fewer updates.
plan_updates() {
  local most=$updates_cpu rate planned
  [[ ${device[*]-} == --cpu ]] || most=$updates_gpu
  if [[ -n $updates ]]; then
    planned=$updates
  else
    train_command && schedule 25
    run_logged speed "${train[@]}" "${lr_schedule[@]}" --no-save --disable-validation --log-interval 5 --save-dir "$work_dir/speed"
    rate=$(grep -o '"ups": "[0-9.]*"' "$work_dir/logs/speed.log" | tail -n 1 | tr -dc '0-9.')
    [[ -n $rate ]] || fail_with_log "$work_dir/logs/speed.log" "measuring the speed"
    planned=$(awk -v rate="$rate" -v minutes="$train_minutes" -v most="$most" \
      'BEGIN { n = int(rate * minutes * 60 * 0.9); if (n > most) n = most; if (n < 20) n = 20; print n }')
    log "this machine makes $rate updates per second; $planned updates will be trained (at most $most)"
  fi
  printf '%s\n' "$planned" >"$work_dir/updates"
}

train_model() {
  local planned log_file=$work_dir/logs/train.log
  planned=$(cat "$work_dir/updates")
  train_command && schedule "$planned"
  [[ ! -e $work_dir/checkpoints/checkpoint_last.pt ]] || log "going on from $work_dir/checkpoints/checkpoint_last.pt"
  log "training $planned updates, at most $train_minutes minutes; everything is logged in $log_file"
  if ! "${train[@]}" "${lr_schedule[@]}" --stop-time-hours "$(awk -v m="$train_minutes" 'BEGIN { printf "%.6f", m / 60 }')" \
    --log-interval 10 --save-dir "$work_dir/checkpoints" --no-epoch-checkpoints --keep-interval-updates 1 \
    --save-interval-updates "$save_updates" --validate-interval-updates "$save_updates" \
    --save-interval 1000000 --validate-interval 1000000 2>&1 |
    python "$repo_root/fairseq_mega/reports/log_progress.py" --log "$log_file" --updates "$planned" --minutes "$train_minutes"; then
    fail_with_log "$log_file" fairseq-mega-train
  fi
  require_file "$work_dir/checkpoints/checkpoint_best.pt" "the training ended without a checkpoint; see $log_file"
}

translate_test() {
  local log_file=$work_dir/logs/generate.log
  rm -f "$log_file" # hypotheses of an interrupted run must not be counted twice
  if ! fairseq-mega-generate "$work_dir/data-bin" "${translate[@]}" --gen-subset test --max-tokens 4000 \
    --required-batch-size-multiple 1 --num-workers 0 2>&1 |
    python "$repo_root/fairseq_mega/reports/log_progress.py" --log "$log_file" --sentences "$(count_test)"; then
    fail_with_log "$log_file" fairseq-mega-generate
  fi
}

count_test() {
  wc -l <"$work_dir/text/test.$source_lang" | tr -d ' '
}

score() {
  python -m fairseq_mega.reports translations "$work_dir/logs/generate.log" --reference "$work_dir/text/test.$target_lang" \
    --source "$work_dir/text/test.$source_lang" --target-lang "$target_lang" --expect "$(count_test)" --examples 5 \
    --json "$work_dir/result.json" --command "$command_line" --seed "$seed" --label quickstart
}

# --- From here on things are made

check_options
work_dir=$(absolute "$work_dir")
packages=$(absolute "${packages:-$work_dir/packages}")
mkdir -p "$work_dir/logs" || die "--work-dir $work_dir cannot be made: give a folder you may write to"
check_settings

[[ -n $text || -e $work_dir/.done/fetch ]] || require_packages
[[ -n $skip_setup ]] || bash "$repo_root/scripts/setup.sh" --venv "$venv"
export FAIRSEQ_MEGA_VENV=$venv
activate_venv
require_command fairseq-mega-train "set the environment up with 'bash scripts/setup.sh', or leave --skip-setup out"
export PYTHONWARNINGS=ignore PYTHONUNBUFFERED=1

if [[ -z $text ]]; then
  run_stage fetch fetch_help
  log "text: $(paste -s -d ';' "$work_dir/help/versions")"
fi

device=()
if [[ -n $force_cpu ]] || ! python -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  device=(--cpu)
  log 'device: CPU'
else
  log "device: $(python -c 'import torch; print(torch.cuda.get_device_name())')"
fi
translate=(
  --path "$work_dir/checkpoints/checkpoint_best.pt" --source-lang "$source_lang" --target-lang "$target_lang"
  --bpe sentencepiece --sentencepiece-model "$work_dir/pieces/joint.model"
  --beam "$beam" --max-len-a 1.5 --max-len-b 20 ${device[@]+"${device[@]}"}
)

run_stage text prepare_text
run_stage subwords learn_subwords
run_stage binarise binarise
run_stage plan plan_updates
run_stage train train_model
run_stage translate translate_test
score

printf '\ncheckpoint: %s\n' "$work_dir/checkpoints/checkpoint_best.pt"
printf 'score and settings: %s\n' "$work_dir/result.json"
printf '\nTo translate what you type (%s to %s), paste this line, wait some seconds, then type a sentence and press return\n' \
  "$source_lang" "$target_lang"
printf '(Ctrl-D ends it; without the part from | on it shows pieces and scores too):\n\n  PYTHONUNBUFFERED=1 PYTHONWARNINGS=ignore '
printf '%q ' "$VIRTUAL_ENV/bin/fairseq-mega-interactive" "$work_dir/data-bin" "${translate[@]}"
# shellcheck disable=SC2016 # the reader's awk expands $3
printf '%s\n' '| awk -F "\t" '"'"'/^D-/ { print $3; fflush() }'"'"
