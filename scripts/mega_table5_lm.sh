#!/usr/bin/env bash
# MEGA, Table 5: WikiText-103 and enwik8 from the text to the numbers; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"

usage() {
  cat <<'HELP'
usage: bash scripts/mega_table5_lm.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Prepares the text, trains MEGA-chunk with the published recipe, scores the test text with its memory carried along and
prints the measured rows of Table 5 beside the paper's. Every finished stage is skipped when the same command is given
again, and an interrupted training goes on from its last checkpoint.

  --task T           wikitext103, enwik8 or both (default: both)
  --work-dir DIR     folder for everything made (default: outputs/table5 in the checkout)
  --data-dir DIR     folder with DIR/wikitext-103/data-bin and DIR/enwik8/data-bin; what is not there is made by
                     scripts/prepare_wikitext103.sh and prepare_enwik8.sh (default: outputs in the checkout, where
                     these put it)
  --results-dir DIR  folder for the JSON result files (default: results in the work folder)
  --seed N           seed of the training (default: 1)
  --gpus N           number of GPUs, a divisor of the paper's 24 (WikiText-103) and 8 (enwik8), or 0 for the CPU
                     (default: all that are visible). Gradients are accumulated so that an update sees the paper's
                     24 x 6144 or 8 x 8192 tokens
  --max-update N     updates, to which the learning rate decays (default: 400000)
  --only-train       stop after the training
  --venv DIR         virtual environment (default: $FAIRSEQ_MEGA_VENV, else .venv in the checkout)
  --skip-setup       take that environment as it is, instead of bringing it up to date with scripts/setup.sh
  --smoke            every stage on a little made-up text with toy models, on the CPU, in about two minutes
  --help             this text

Options after -- are added to fairseq-train, for instance: -- --checkpoint-activations
HELP
}

task=both work_dir='' data_dir='' results_dir='' seed=1 gpus='' max_update='' only_train='' skip_setup='' smoke='' extra=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --task) require_value "$@"; task=$2; shift 2 ;;
    --work-dir) require_value "$@"; work_dir=$2; shift 2 ;;
    --data-dir) require_value "$@"; data_dir=$2; shift 2 ;;
    --results-dir) require_value "$@"; results_dir=$2; shift 2 ;;
    --seed) require_value "$@"; seed=$2; shift 2 ;;
    --gpus) require_value "$@"; gpus=$2; shift 2 ;;
    --max-update) require_value "$@"; max_update=$2; shift 2 ;;
    --only-train) only_train=yes; shift ;;
    --venv) require_value "$@"; export FAIRSEQ_MEGA_VENV=$2; shift 2 ;;
    --skip-setup) skip_setup=yes; shift ;;
    --smoke) smoke=yes; shift ;;
    --help | -h) usage; exit 0 ;;
    --) shift; extra=("$@"); break ;;
    *) die "unknown option '$1'; see --help" ;;
  esac
done
case $task in
  wikitext103 | enwik8) selected=("$task") ;;
  both) selected=(wikitext103 enwik8) ;;
  *) die "--task is '$task': choose from wikitext103, enwik8, both" ;;
esac
: "${work_dir:=$repo_root/outputs/table5${smoke:+-smoke}}" "${max_update:=${smoke:+12}}" "${max_update:=400000}"
[[ ! $smoke ]] || : "${data_dir:=$work_dir/data}"
: "${data_dir:=$repo_root/outputs}" "${results_dir:=$work_dir/results}"
for number in "$seed" "$max_update" ${gpus:+"$gpus"}; do
  [[ $number =~ ^[0-9]{1,9}$ ]] || die "--seed, --gpus and --max-update: '$number' is no whole number"
done
[[ $skip_setup ]] || bash "$repo_root/scripts/setup.sh" --extras translation,plots
activate_venv
mkdir -p "$work_dir/logs" "$results_dir"
work_dir=$(cd "$work_dir" && pwd)
data_dir=$(mkdir -p "$data_dir" && cd "$data_dir" && pwd)
[[ ! $smoke ]] || gpus=0

choose_device() { # BATCHES: of the paper's GPUs
  local visible
  visible=$(python -c 'import torch; print(torch.cuda.device_count())')
  if [[ -z $gpus ]]; then
    gpus=$visible
    ((gpus > 0)) || die "no GPU is visible: the full training is not for a CPU; give --gpus 0 to do it nevertheless, or --smoke"
  fi
  ((gpus <= visible)) || die "--gpus is $gpus, but $visible are visible: choose fewer, or look at CUDA_VISIBLE_DEVICES"
  device=(--cpu)
  evaluation_device=cpu
  if ((gpus > 0)); then
    (($1 % gpus == 0)) || die "--gpus is $gpus, which does not divide $1: the paper's batch comes from $1 GPUs"
    device=(--distributed-world-size "$gpus")
    evaluation_device=cuda
  fi
  update_freq=$(($1 / (gpus > 0 ? gpus : 1)))
}

# The published recipes (facebookresearch/mega); the smoke run keeps every option that is not a matter of size.
recipe() {
  warmup=24000 interval=2000
  case $1 in
    wikitext103)
      batches=24
      recipe=(--arch mega_lm_adaptive_big --decoder-hidden-dim 2048 --decoder-chunk-size 1024 --max-target-positions 8096
        --max-tokens 6144 --variant-block-multiple-min 2 --variant-block-multiple-max 6 --criterion adaptive_loss
        --dropout 0.3 --attention-dropout 0.1 --hidden-dropout 0.1)
      segments=10 test_chunk=2048 chunk_nums=2
      ;;
    enwik8)
      batches=8
      recipe=(--arch mega_lm_enwik8_base --decoder-chunk-size 2048 --max-target-positions 10384 --max-tokens 8192
        --variant-block-multiple-min 2 --variant-block-multiple-max 4 --criterion cross_entropy
        --share-decoder-input-output-embed --dropout 0.1 --attention-dropout 0.0 --hidden-dropout 0.0)
      segments=50 test_chunk=4096 chunk_nums=3
      ;;
  esac
  if [[ $smoke ]]; then
    batches=2 warmup=4 interval=5 test_chunk=32
    recipe+=(--decoder-layers 1 --decoder-embed-dim 32 --decoder-hidden-dim 48 --decoder-z-dim 16 --decoder-chunk-size 16
      --max-tokens 2048 --max-target-positions 2048)
    [[ $1 == enwik8 ]] || recipe+=(--adaptive-softmax-cutoff "10,20")
  fi
}

# data_of TASK: the folder that the script of its data writes, too.
data_of() {
  printf '%s' "$data_dir/${1/#wikitext103/wikitext-103}"
}

train() {
  local run_dir=$2
  local log_file=$run_dir/train.log
  local command=(fairseq-mega-train "$(data_of "$1")/data-bin" --task mega_language_modeling --seed "$seed" "${device[@]}"
    --ddp-backend legacy_ddp "${recipe[@]}" --update-freq "$update_freq" --activation-fn silu
    --attention-activation-fn softmax --decoder-n-dim 16 --normalize-before --no-affine-final-norm
    --normalization-type layernorm --truncation-length 8192 --rel-pos-bias rotary --optimizer adam --lr 5e-3
    --adam-betas '(0.9, 0.98)' --adam-eps 1e-8 --clip-norm 0.25 --weight-decay 0.1 --lr-scheduler linear_decay
    --total-num-update "$max_update" --max-update "$max_update" --end-learning-rate 0.0 --warmup-updates "$warmup"
    --warmup-init-lr 1e-07 --sample-break-mode complete --valid-block splits:10 --valid-subset valid
    --no-epoch-checkpoints --save-interval-updates "$interval" --keep-interval-updates 1 --save-dir "$run_dir/checkpoints"
    --log-format json --log-interval 10 --num-workers 0 ${extra[@]+"${extra[@]}"})
  printf '%q ' "${command[@]}" >"$run_dir/train.command"
  [[ ! -e $run_dir/checkpoints/checkpoint_last.pt ]] || log "going on from $run_dir/checkpoints/checkpoint_last.pt"
  log "training $max_update updates; everything is logged in $log_file"
  "${command[@]}" 2>&1 | python "$repo_root/fairseq_mega/reports/log_progress.py" --log "$log_file" --updates "$max_update" ||
    fail_with_log "$log_file" fairseq-mega-train
  require_file "$run_dir/checkpoints/checkpoint_best.pt" "the training ended without a best checkpoint; see $log_file"
}

score() {
  python -m fairseq_mega.cli.evaluate_lm "$(data_of "$1")/data-bin" --path "$2/checkpoints/checkpoint_best.pt" --label "$1.seed$seed" \
    --benchmark "table5${smoke:+-smoke}" --segments "$segments" --chunk-size "$test_chunk" --chunk-nums "$chunk_nums" \
    --max-tokens $((test_chunk * chunk_nums)) --device "$evaluation_device" --output "$results_dir"
}

# settle TASK: recipe, device and folder of a task's run, which belongs to these settings.
settle() {
  recipe "$1"
  choose_device "$batches"
  run_dir=$work_dir/runs/$1.seed$seed
  work_dir=$run_dir keep_settings --work-dir "data: $(data_of "$1")" "--max-update: $max_update" "options: ${extra[*]-}"
}

# What would stop the second of two trainings of weeks is said before the first one.
for one in "${selected[@]}"; do
  checking=yes settle "$one"
done
for one in "${selected[@]}"; do
  [[ -e $(data_of "$one")/data-bin/train.bin ]] ||
    bash "$repo_root/scripts/prepare_$one.sh" --skip-setup --out "$(data_of "$one")" ${smoke:+--smoke}
done
for one in "${selected[@]}"; do
  mkdir -p "$work_dir/runs/$one.seed$seed"
  settle "$one"
  run_stage "$one.seed$seed.train" train "$one" "$run_dir"
  [[ $only_train ]] || run_stage "$one.seed$seed.score" score "$one" "$run_dir"
done
[[ $only_train ]] || python -m fairseq_mega.reports table5 "$results_dir" ${smoke:+--smoke}
