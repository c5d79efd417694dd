#!/usr/bin/env bash
# MEGA, Table 7: WMT'16 English-German from the archives to the scores; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/mega_table7_wmt16.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Fetches and prepares the WMT'16 English-German data, trains MEGA base, averages checkpoints, translates newstest2014
and prints the measured row of Table 7 beside the paper's. Every finished stage is skipped when the same command is
given again, and an interrupted training goes on from its last checkpoint.

  --work-dir DIR     folder for everything made (default: outputs/wmt16 in the checkout; 40 GB)
  --data-dir DIR     folder that holds, or gets, the five archives (default: archives in the work folder)
  --no-download      refuse to download: all archives must be in --data-dir
  --results-dir DIR  folder for the JSON result files (default: results in the work folder)
  --direction D      en-de, de-en or both (default: both)
  --attention A      softmax, laplace or both (default: both)
  --seeds LIST       training seeds, separated by commas (default: 1; the paper has 5 seeds, its values are not known)
  --gpus N           number of GPUs: 1, 2, 4 or 8, or 0 for the CPU (default: all that are visible). Gradients are
                     accumulated so that an update always sees 8 x 8192 tokens as in the paper
  --max-update N     number of updates, to which the learning rate decays (default: 500000)
  --average N        number of last epoch checkpoints to average (default: 5)
  --processes N      processes for the text preparation (default: all cores)
  --venv DIR         virtual environment (default: $FAIRSEQ_MEGA_VENV, else .venv in the checkout)
  --skip-setup       take that environment as it is, instead of bringing it up to date with scripts/setup.sh
  --smoke            run every stage on a little invented text with a toy model, on the CPU, in under three minutes
                     (en-de and softmax unless told otherwise)
  --help             this text

Options after -- are added to fairseq-train, for instance: -- --checkpoint-activations
HELP
}

work_dir='' data_dir='' results_dir='' direction='' attention='' seeds=1 gpus='' max_update='' average='' smoke=''
processes=$(getconf _NPROCESSORS_ONLN)
venv=${FAIRSEQ_MEGA_VENV:-$repo_root/.venv}
no_download=() skip_setup='' checking='' extra=()
command_line=$(printf ' %q' "$@")
command_line="bash scripts/mega_table7_wmt16.sh${*:+$command_line}"
while [[ $# -gt 0 ]]; do
  case $1 in
    --work-dir) require_value "$@"; work_dir=$2; shift 2 ;;
    --data-dir) require_value "$@"; data_dir=$2; shift 2 ;;
    --no-download) no_download=(--no-download); shift ;;
    --results-dir) require_value "$@"; results_dir=$2; shift 2 ;;
    --direction) require_value "$@"; direction=$2; shift 2 ;;
    --attention) require_value "$@"; attention=$2; shift 2 ;;
    --seeds) require_value "$@"; seeds=$2; shift 2 ;;
    --gpus) require_value "$@"; gpus=$2; shift 2 ;;
    --max-update) require_value "$@"; max_update=$2; shift 2 ;;
    --average) require_value "$@"; average=$2; shift 2 ;;
    --processes) require_value "$@"; processes=$2; shift 2 ;;
    --venv) require_value "$@"; venv=$2; shift 2 ;;
    --skip-setup) skip_setup=yes; shift ;;
    --smoke) smoke=yes; shift ;;
    --help | -h) usage; exit 0 ;;
    --) shift; extra=("$@"); break ;;
    *) die "unknown option '$1'; see --help" ;;
  esac
done

# What is trained: MEGA base, Table 10 of the paper and the published recipe. The smoke run keeps every option that is
# not a matter of size.
global_batches=8
if [[ $smoke ]]; then
  : "${work_dir:=$repo_root/outputs/wmt16-smoke}" "${direction:=en-de}" "${attention:=softmax}" "${gpus:=0}"
  : "${max_update:=25}" "${average:=2}"
  benchmark=wmt16-newstest2014-smoke sentences=45 merges=300 warmup=5 interval=15 layers=2 workers=0
  size=(--encoder-embed-dim 32 --encoder-hidden-dim 48 --encoder-z-dim 16 --max-tokens 1024 --batch-size 16
    --eval-bleu-args '{"max_len_a": 0, "max_len_b": 20}')
else
  : "${work_dir:=$repo_root/outputs/wmt16}" "${direction:=both}" "${attention:=both}"
  : "${max_update:=500000}" "${average:=5}"
  benchmark=wmt16-newstest2014 sentences=3003 merges=32000 warmup=4000 interval=5000 layers=6 workers=2
  size=(--max-tokens 8192 --batch-size 1024)
fi

number() {
  if [[ ! $2 =~ ^[0-9]{1,9}$ ]] || ((10#$2 < $3)); then
    die "$1 is '$2': a whole number of at least $3 is needed"
  fi
}

case $direction in
  en-de | de-en) directions=("$direction") ;;
  both) directions=(en-de de-en) ;;
  *) die "--direction is '$direction': choose from en-de, de-en, both" ;;
esac
case $attention in
  softmax | laplace) attentions=("$attention") ;;
  both) attentions=(softmax laplace) ;;
  *) die "--attention is '$attention': choose from softmax, laplace, both" ;;
esac
[[ $seeds =~ ^[0-9]+(,[0-9]+)*$ ]] || die "--seeds is '$seeds': whole numbers separated by commas are needed, for instance 1,11,101"
number --max-update "$max_update" $((warmup + 1))
number --average "$average" 1
number --processes "$processes" 1
if [[ $gpus ]]; then
  number --gpus "$gpus" 0
  ((gpus == 0 || global_batches % gpus == 0)) || die "--gpus is $gpus, which does not divide $global_batches: the paper's \
batch is $global_batches x 8192 tokens; choose 1, 2, 4 or 8"
fi
: "${data_dir:=$work_dir/archives}" "${results_dir:=$work_dir/results}"

if [[ ! $skip_setup ]]; then
  bash "$repo_root/scripts/setup.sh" --venv "$venv" --extras translation
fi
FAIRSEQ_MEGA_VENV=$venv activate_venv
require_command fairseq-train "run 'bash scripts/setup.sh'"
export PYTHONPATH="$repo_root${PYTHONPATH:+:$PYTHONPATH}" # python -m fairseq_mega... from any folder
export PYTHONWARNINGS=${PYTHONWARNINGS-ignore}
user_dir=$repo_root/fairseq_mega

mkdir -p "$work_dir" "$results_dir"
work_dir=$(cd "$work_dir" && pwd)
kind=${smoke:+smoke}
if [[ -e $work_dir/kind && $(cat "$work_dir/kind") != "${kind:-full}" ]]; then
  die "--work-dir $work_dir belongs to a $(cat "$work_dir/kind") run: choose another folder for this ${kind:-full} run"
fi
echo "${kind:-full}" >"$work_dir/kind"

# The number of GPUs is needed only where something is still to be trained.
choose_device() {
  local visible
  visible=$(python -c 'import torch; print(torch.cuda.device_count())')
  if [[ -z $gpus ]]; then
    gpus=$visible
    ((gpus > 0)) || die "no GPU is visible: the full training is not for a CPU; give --gpus 0 to do it nevertheless, or --smoke"
    ((global_batches % gpus == 0)) || die "$gpus GPUs are visible, which does not divide $global_batches: choose with --gpus 1, 2, 4 or 8"
  fi
  ((gpus <= visible)) || die "--gpus is $gpus, but $visible are visible: choose fewer, or look at CUDA_VISIBLE_DEVICES"
  if ((gpus == 0)); then
    device=(--cpu)
    update_freq=$global_batches
  else
    device=(--distributed-world-size "$gpus")
    update_freq=$((global_batches / gpus))
  fi
  log "training on ${gpus/#0/no} GPU(s), $update_freq batch(es) of each per update"
}

fetch() {
  if [[ $smoke ]]; then
    python -m fairseq_mega.corpora.wmt16 make-up --output "$data_dir"
    no_download=(--no-download)
  fi
  python -m fairseq_mega.corpora.wmt16 fetch --archives "$data_dir" --record "$work_dir/checksums.json" ${no_download[@]+"${no_download[@]}"}
}

unpack() {
  local counts=()
  [[ ! $smoke ]] || counts=(--counts "$data_dir/counts.json")
  python -m fairseq_mega.corpora.wmt16 unpack --archives "$data_dir" --output "$work_dir/raw" ${counts[@]+"${counts[@]}"}
}

tokenize() {
  python -m fairseq_mega.corpora.wmt16 tokenize --input "$work_dir/raw" --output "$work_dir/tokenized" --processes "$processes"
}

learn_bpe() {
  python -m fairseq_mega.corpora.wmt16 learn-bpe --input "$work_dir/tokenized" --codes "$work_dir/bpe/codes" --merges "$merges"
}

apply_bpe() {
  python -m fairseq_mega.corpora.wmt16 apply-bpe --input "$work_dir/tokenized" --codes "$work_dir/bpe/codes" \
    --output "$work_dir/bpe" --processes "$processes"
}

clean() {
  python -m fairseq_mega.corpora.wmt16 clean --input "$work_dir/bpe"
}

# One binarised folder serves both directions: fairseq finds train.en-de for --source-lang de too.
binarize() {
  local bpe=$work_dir/bpe
  rm -rf "$work_dir/data-bin"
  run_logged preprocess fairseq-preprocess --source-lang en --target-lang de --trainpref "$bpe/train.clean" --validpref "$bpe/newstest2013" \
    --testpref "$bpe/newstest2014,$bpe/newstest2015,$bpe/newstest2016" --joined-dictionary --nwordssrc 33000 \
    --nwordstgt 33000 --destdir "$work_dir/data-bin" --workers "$processes"
  require_file "$work_dir/data-bin/dict.en.txt" "binarising ended without a dictionary; see $work_dir/logs/preprocess.log"
  log "dictionary: $(wc -l <"$work_dir/data-bin/dict.en.txt") words"
}

# The training of one direction, attention function and seed; the flags of the published recipe.
train() {
  local source_lang=$1 target_lang=$2 function=$3 seed=$4 run_dir=$5
  local log_file=$run_dir/train.log
  local command=(fairseq-train "$work_dir/data-bin" --user-dir "$user_dir" --task translation
    --source-lang "$source_lang" --target-lang "$target_lang" --seed "$seed" "${device[@]}" --ddp-backend legacy_ddp
    --arch mega_wmt_en_de --encoder-layers "$layers" --decoder-layers "$layers" --activation-fn silu
    --attention-activation-fn "$function" --encoder-n-dim 16 --encoder-chunk-size -1 --normalization-type layernorm
    --truncation-length 0 --share-all-embeddings --dropout 0.15 --attention-dropout 0.1 --hidden-dropout 0.1
    --activation-dropout 0.1 --weight-decay 0.05 --optimizer adam --lr 1e-3 --adam-betas '(0.9, 0.98)' --adam-eps 1e-8
    --clip-norm 1.0 --criterion label_smoothed_cross_entropy --label-smoothing 0.1 "${size[@]}"
    --update-freq "$update_freq" --lr-scheduler linear_decay --total-num-update "$max_update" --max-update "$max_update"
    --end-learning-rate 0.0 --warmup-updates "$warmup" --warmup-init-lr 1e-07 --eval-bleu --eval-bleu-remove-bpe
    --eval-tokenized-bleu --best-checkpoint-metric bleu --maximize-best-checkpoint-metric --keep-last-epochs "$average"
    --keep-interval-updates 1 --save-interval-updates "$interval" --save-dir "$run_dir/checkpoints"
    --log-format json --log-interval 10 --num-workers "$workers" ${extra[@]+"${extra[@]}"})
  printf '%q ' "${command[@]}" >"$run_dir/train.command"
  [[ ! -e $run_dir/checkpoints/checkpoint_last.pt ]] || log "going on from $run_dir/checkpoints/checkpoint_last.pt"
  log "training $max_update updates; everything is logged in $log_file"
  "${command[@]}" 2>&1 | python "$repo_root/fairseq_mega/reports/log_progress.py" --log "$log_file" --updates "$max_update" ||
    fail_with_log "$log_file" fairseq-train
  require_file "$run_dir/checkpoints/checkpoint_best.pt" "the training ended without a best checkpoint; see $log_file"
}

average_last() {
  python -m fairseq_mega.cli.average_checkpoints --dir "$1/checkpoints" --last-epochs "$average" --output "$1/checkpoint_average.pt"
}

translate() {
  local source_lang=$1 target_lang=$2 run_dir=$3 checkpoint=$4 name=$5
  local output=$run_dir/generate.$name.txt log_file=$run_dir/generate.$name.log
  local where=()
  ((gpus > 0)) || where=(--cpu)
  require_file "$checkpoint" "remove $work_dir/.done/*.train and the marker of this stage, then train again"
  rm -f "$output.partial" # half of an interrupted run must not be counted
  fairseq-generate "$work_dir/data-bin" --user-dir "$user_dir" --task translation --source-lang "$source_lang" \
    --target-lang "$target_lang" --gen-subset test --path "$checkpoint" ${where[@]+"${where[@]}"} --beam 5 --lenpen 0.5 \
    --batch-size 300 --max-len-a 0 --max-len-b 200 --remove-bpe --required-batch-size-multiple 1 --num-workers "$workers" \
    2>"$log_file" | python "$repo_root/fairseq_mega/reports/log_progress.py" --log "$output.partial" --sentences "$sentences" ||
    fail_with_log "$log_file" fairseq-generate
  mv "$output.partial" "$output"
}

score() {
  local source_lang=$1 target_lang=$2 function=$3 seed=$4 run_dir=$5 name=$6
  local label=$source_lang-$target_lang.$function.seed$seed.$name official=()
  [[ $smoke ]] || official=(--sacrebleu-test-set wmt14/full)
  python -m fairseq_mega.reports translations "$run_dir/generate.$name.txt" --expect "$sentences" \
    --source-lang "$source_lang" --target-lang "$target_lang" --source "$work_dir/raw/newstest2014.$source_lang" \
    --reference "$work_dir/raw/newstest2014.$target_lang" --detokenize en --compound-split \
    --tokenized-reference "$work_dir/tokenized/newstest2014.$target_lang" ${official[@]+"${official[@]}"} --examples 3 \
    --json "$results_dir/$benchmark.$label.json" --benchmark "$benchmark" --label "MEGA $label" --seed "$seed" \
    --command "$command_line" --setting "direction=$source_lang-$target_lang" --setting "attention=$function" \
    --setting "checkpoint=$name" --setting "max_update=$max_update" --setting "averaged_epochs=$average"
}

one_run() {
  local source_lang=${1%-*} target_lang=${1#*-} function=$2 seed=$3
  local run=$1.$function.seed$seed
  local run_dir=$work_dir/runs/$run
  [[ $checking ]] || mkdir -p "$run_dir"
  work_dir=$run_dir keep_settings --work-dir "--max-update: $max_update" "--average: $average" "options: ${extra[*]-}"
  [[ ! $checking ]] || return 0
  run_stage "$run.train" train "$source_lang" "$target_lang" "$function" "$seed" "$run_dir"
  run_stage "$run.average" average_last "$run_dir"
  run_stage "$run.translate.best" translate "$source_lang" "$target_lang" "$run_dir" "$run_dir/checkpoints/checkpoint_best.pt" best
  run_stage "$run.translate.average" translate "$source_lang" "$target_lang" "$run_dir" "$run_dir/checkpoint_average.pt" average
  # Scoring is cheap and is repeated each time, so that the results always belong to this command.
  local name
  for name in best average; do
    score "$source_lang" "$target_lang" "$function" "$seed" "$run_dir" "$name"
  done
}

all_runs() {
  local one_direction one_attention seed
  for one_direction in "${directions[@]}"; do
    for one_attention in "${attentions[@]}"; do
      for seed in ${seeds//,/ }; do
        one_run "$one_direction" "$one_attention" "$seed"
      done
    done
  done
}

mkdir -p "$work_dir/logs"
choose_device
checking=yes all_runs
for stage in fetch unpack tokenize learn_bpe apply_bpe clean binarize; do
  run_stage "$stage" "$stage"
done
all_runs
python -m fairseq_mega.reports table7 "$results_dir" ${smoke:+--smoke}
log "result files: $results_dir/$benchmark.*.json"
