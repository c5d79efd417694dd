# shellcheck shell=bash
# shellcheck disable=SC2034 # options and settings that only the scripts use
# What the scripts of the Long Range Arena and of speech share; to be sourced by a bash script that has set -euo pipefail.
# All of them keep their runs in one folder under names that say what was trained, so that a model that is in two tables
# is trained once.

# shellcheck source=scripts/work.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/work.sh" # --out, --workers, --venv, --skip-setup, --smoke

checking='' needs_plot='' task='' data='' chunk='' seeds=1,2,3,4,5 gpus='' max_update='' keep_schedule='' precision=fp32 per_step='' scaling=twice
extra=()
command_line=$(printf ' %q' "$@")
command_line="bash scripts/$(basename "$0")${*:+$command_line}"

# lra_help: the lines of --help on the options that all these scripts have.
lra_help() {
  cat <<'HELP'
  --data DIR        folder of the data, with several tasks one DIR/TASK each (default: outputs/lra/TASK in the checkout);
                    data that are not there are made by fairseq-mega-prepare
  --out DIR         folder of runs and results, shared by the scripts of the Long Range Arena: a model that is trained is
                    not trained again (default: outputs/lra in the checkout)
  --seeds LIST      seeds of the training, separated by commas (default: 1,2,3,4,5)
  --gpus N          number of GPUs, or 0 for the CPU (default: 1). Gradients are accumulated so that an update sees the
                    paper's batch, and a batch norm over several GPUs is synchronised
  --per-step N      examples that a GPU takes at a time (default: the published recipe's)
  --max-update N    fewer updates than the paper's, to which the rate decays; the warm-up is shortened in proportion
  --keep-schedule   with --max-update: the paper's schedule, stopped after N updates; a higher N goes on from there
  --fp32 | --bf16   precision (default: fp32, as in the paper)
  --workers N       processes for preparing data (default: the number of cores)
  --venv DIR        virtual environment (default: $FAIRSEQ_MEGA_VENV, else .venv of the checkout)
  --skip-setup      take that environment as it is, instead of bringing it up to date with scripts/setup.sh
  --smoke           toy models, a few updates, a little made-up data, on the CPU
  --help            this text

Options after -- are added to fairseq-train, for instance -- --save-interval-updates 500 to save (and validate) more than
once an epoch. The same command given again goes on where it was stopped. The best checkpoint is that of the best
validation accuracy; it is scored on the test set. Result files are in results in the folder of --out.
HELP
}

# lra_option "$@": takes the option that "$@" begins with, and sets "taken" to the number of words to shift.
lra_option() {
  taken=2
  case $1 in
    --task) require_value "$@"; task=$2 ;;
    --data) require_value "$@"; data=$2 ;;
    --chunk) require_value "$@"; chunk=$2 ;;
    --seeds) require_value "$@"; seeds=$2 ;;
    --gpus) require_value "$@"; gpus=$2 ;;
    --per-step) require_value "$@"; per_step=$2 ;;
    --max-update) require_value "$@"; max_update=$2 ;;
    --keep-schedule) keep_schedule=yes; taken=1 ;;
    --fp32 | --bf16) precision=${1#--}; taken=1 ;;
    --) extra=("${@:2}"); taken=$# ;;
    *) common_option "$@" ;;
  esac
}

# check_chunk OPTION VALUE TASK: dies unless the value is -1 or a chunk that the task's inputs can be cut into.
check_chunk() {
  [[ $2 != -1 ]] || return 0
  [[ $2 =~ ^[1-9][0-9]{0,6}$ ]] || die "$1 is '$2': a number of positions is needed, or -1 for full attention"
  recipe "$3"
  [[ -z $length ]] || ((length % $2 == 0)) ||
    die "$1 is $2, which does not divide the $length positions of --task $3: give a divisor, or -1 for full attention"
}

# start_lra TASK...: checks the shared options, and prepares environment, folders, device and the data of all tasks. Sets
# "results" and "tasks".
start_lra() {
  tasks=("$@")
  [[ $seeds =~ ^(0|[1-9][0-9]{0,8})(,(0|[1-9][0-9]{0,8}))*$ ]] ||
    die "--seeds is '$seeds': whole numbers separated by commas are needed, for instance 1,2,3"
  [[ -z $max_update ]] || whole_number --max-update "$max_update" 1
  [[ -z $per_step ]] || whole_number --per-step "$per_step" 1
  [[ -z $gpus ]] || whole_number --gpus "$gpus" 0
  [[ ! $keep_schedule || $max_update ]] || die "--keep-schedule needs --max-update, the updates to stop after"
  local one
  for one in "${tasks[@]}"; do
    recipe "$one"
    [[ -z $max_update ]] || ((max_update <= published)) ||
      die "--max-update is $max_update, and the paper's training of --task $one has $published: give fewer"
  done
  if [[ $smoke ]]; then
    : "${max_update:=6}" "${gpus:=0}"
  fi
  : "${gpus:=1}" "${work_dir:=$repo_root/outputs/lra${smoke:+-smoke}}"
  [[ $skip_setup ]] || bash "$repo_root/scripts/setup.sh" --venv "$venv" --extras translation,plots
  skip_setup=yes
  start_work "runs of the Long Range Arena and of speech"
  [[ ! $needs_plot ]] || require_pyplot
  results=$work_dir/results
  mkdir -p "$results"
  device=(--cpu) test_device=(--cpu) num_workers=0
  if ((gpus > 0)); then
    local visible
    visible=$(python -c 'import torch; print(torch.cuda.device_count())')
    ((gpus <= visible)) || die "$gpus GPU(s) are wanted and $visible visible: give fewer with --gpus, or --gpus 0 for the CPU"
    device=(--distributed-world-size "$gpus" --ddp-backend legacy_ddp) test_device=() num_workers=2
  fi
  for one in "${tasks[@]}"; do
    recipe "$one"
    batches "$one" # now rather than after days
    if [[ $norm == *batchnorm ]] && ((step * (gpus > 0 ? gpus : 1) != statistics)); then
      log "$one: the batch norm sees $((step * (gpus > 0 ? gpus : 1))) examples at a time, in the published recipe $statistics"
    fi
  done
  find_data
}

# recipe TASK: the published settings of a task. "statistics" is how many examples its batch norm sees at a time, or how
# many fit at a time. "length" is that of inputs that are cut into whole chunks; "early" a tenth of the epochs.
recipe() {
  task_name=$1 fairseq_task=lra-image length='' normalization=() pre_norm=()
  function=laplace paper_chunk=128 dropout=0.0 power=1.0
  case $1 in
    listops) dataset=listops fairseq_task=lra-text arch=listop function=softmax norm=layernorm dropout=0.1 ;;
    text) dataset=imdb fairseq_task=lra-text arch=imdb function=softmax norm=scalenorm dropout=0.1 ;;
    retrieval) dataset=aan fairseq_task=lra-text arch=aan function=softmax norm=scalenorm dropout=0.1 ;;
    image) dataset=cifar10 arch=cifar10 length=1024 norm=batchnorm normalization=(--pixel-normalization 0.48 0.24) ;;
    pathfinder) dataset=pathfinder32 arch=pf32 length=1024 norm=batchnorm normalization=(--pixel-normalization 0.5 0.5) ;;
    pathx)
      dataset=pathx arch=pf128 length=16384 norm=syncbatchnorm normalization=(--pixel-normalization 0.5 0.5)
      paper_chunk=4096 power=2.0
      ;;
    speech) dataset=speech-commands fairseq_task=speech_commands arch=sc length=16000 norm=batchnorm paper_chunk=1000 ;;
  esac
  case $1 in
    listops) batch=64 statistics=64 lr=0.001 decay=0.01 warmup=3000 published=90000 early=6 ;;
    text) batch=50 statistics=25 lr=0.004 decay=0.01 warmup=10000 published=25000 early=5 ;;
    retrieval) batch=64 statistics=8 lr=0.003 decay=0.04 warmup=10000 published=91960 early=4 ;;
    image) batch=50 statistics=50 lr=0.01 decay=0.02 warmup=9000 published=180000 early=20 ;;
    pathfinder) batch=128 statistics=128 lr=0.01 decay=0.01 warmup=50000 published=250000 early=20 ;;
    pathx) batch=128 statistics=16 lr=0.01 decay=0.01 warmup=25000 published=125000 early=10 ;;
    speech) batch=20 statistics=20 lr=0.01 decay=0.01 warmup=10000 published=250000 early=20 ;;
  esac
  [[ $norm != *batchnorm ]] || pre_norm=(--normalize-before)
  if [[ $smoke ]]; then
    batch=$([[ $1 == pathx ]] && echo 2 || echo 8) # full attention over 16,384 pixels takes its time
    statistics=$((statistics < batch ? statistics : batch))
  fi
  updates=${max_update:-$published} total=${max_update:-$published}
  if [[ $keep_schedule ]]; then
    total=$published
  else
    warmup=$((warmup * total / published))
  fi
}

# batches TASK: from the recipe and --gpus the examples of a step and the steps of an update; dies where they do not fit.
batches() {
  local places=$((gpus > 0 ? gpus : 1)) most=$statistics
  ((batch % places == 0)) || die "--gpus is $gpus, which does not divide the $batch examples of an update of --task $1"
  local share=$((batch / places))
  [[ $norm != *batchnorm ]] || most=$(((statistics + places - 1) / places))
  if [[ $per_step ]]; then
    ((share % per_step == 0)) || die "--per-step is $per_step, which does not divide the $share examples of an update that \
each place takes of --task $1"
    step=$per_step
  else
    step=$((most < share ? most : share))
    while ((share % step != 0)); do
      step=$((step - 1))
    done
  fi
  update_freq=$((share / step))
  if [[ $norm == batchnorm ]] && ((places > 1)); then
    norm=syncbatchnorm
  fi
}

# data_of TASK: prints the folder of its data.
data_of() {
  if [[ $data && ${#tasks[@]} -eq 1 ]]; then
    printf '%s' "$data"
  elif [[ $smoke ]]; then
    printf '%s' "${data:-$work_dir/data}/$1"
  else
    printf '%s' "${data:-$repo_root/outputs/lra}/$1"
  fi
}

# find_data: makes the data of all tasks that are not there; dies before the first are made where some cannot be.
find_data() {
  local one places=() missing
  for one in "${tasks[@]}"; do
    places+=("$one=$(data_of "$one")")
  done
  missing=$(python "$repo_root/fairseq_mega/corpora/classification/missing.py" ${smoke:+--smoke} "${places[@]}")
  for one in $missing; do
    recipe "$one"
    make_data "$(data_of "$one")"
  done
}

# make_data DIR: of the task whose recipe is set.
make_data() {
  local data_dir=$1 sources=()
  if [[ $smoke ]]; then
    local made=$work_dir/made-up/$dataset
    python "$repo_root/fairseq_mega/corpora/classification/made_up.py" "$dataset" "$made"
    mapfile -t sources <"$made/options"
  fi
  case $dataset in
    listops | pathfinder32 | pathx) sources+=(--workers "$workers") ;;
    speech-commands) sources+=(--scaling "$scaling") ;;
  esac
  log "$data_dir holds no data: making them with fairseq-mega-prepare $dataset"
  python -m fairseq_mega.cli.prepare "$dataset" --out "$data_dir" ${sources[@]+"${sources[@]}"}
}

# run_mega TASK FUNCTION DIMS CHUNK [SIZE]: MEGA with each seed; the size is that of the speech models.
run_mega() {
  recipe "$1"
  local name=mega${5:+-$5} arch_name=mega_lra_$arch
  if [[ $1 == speech ]]; then
    arch_name=mega_sc_raw_$5
    [[ $5 != big ]] || lr=0.008
  fi
  batches "$1"
  model=(--arch "$arch_name" --activation-fn silu --attention-activation-fn "$2" --encoder-n-dim "$3"
    --encoder-chunk-size "$4" --normalization-type "$norm" ${pre_norm[@]+"${pre_norm[@]}"})
  [[ ! $smoke ]] || model+=(--encoder-hidden-dim 32 --encoder-z-dim 8)
  local reach=c$4
  [[ $4 != -1 ]] || reach=full
  if [[ $1 == speech ]]; then
    model+=(--sc-scaling "$scaling") # data of the other one are refused
    [[ $scaling == twice ]] || reach+=.$scaling
  fi
  run_seeds "$1" "$1.$name.$2.n$3.$reach" "model=$name" "attention=$2" "ema_dim=$3" "chunk=$4"
}

# run_transformer TASK RATE: the Transformer with each seed, at a peak rate of its own.
run_transformer() {
  recipe "$1"
  lr=$2
  norm=layernorm # the Transformer has no batch norm to keep
  batches "$1"
  model=(--arch "transformer_lra_matched_${arch/pf128/pf32}")
  [[ $arch != pf128 ]] || model=(--arch transformer_lra_pf128)
  [[ ! $smoke ]] || model+=(--encoder-ffn-embed-dim 32 --encoder-attention-heads 2)
  run_seeds "$1" "$1.transformer" model=transformer attention=softmax ema_dim=0 chunk=-1
}

# run_seeds TASK NAME SETTING...: trains and tests "model" with each seed, and writes one result file each.
run_seeds() {
  local name=$2 seed run_dir before at_a_time=() data_dir
  data_dir=$(cd "$(data_of "$1")" && pwd)
  shift 2
  if [[ $norm == *batchnorm ]] && ((step * (gpus > 0 ? gpus : 1) != statistics)); then
    at_a_time=("batch norm over: $((step * (gpus > 0 ? gpus : 1)))")
  fi
  [[ ! $smoke ]] || model+=(--encoder-layers 1 --encoder-embed-dim 16 --classifier-out-dim 16)
  [[ $precision == fp32 ]] || model+=(--bf16)
  for seed in ${seeds//,/ }; do
    run=$name.seed$seed run_dir=$work_dir/runs/$name.seed$seed
    [[ $checking ]] || mkdir -p "$run_dir"
    work_dir=$run_dir keep_settings --out "data: $data_dir" "batch: $batch" ${at_a_time[@]+"${at_a_time[@]}"} "lr: $lr" \
      "schedule: $warmup of $total" "precision: $precision" "options: ${extra[*]-}"
    before=$([[ ! -e $run_dir/updates ]] || cat "$run_dir/updates")
    ((updates >= ${before:-0})) || die "$run_dir was trained for $before updates, --max-update is $updates: give at least $before"
    [[ ! $checking ]] || continue
    echo "$updates" >"$run_dir/updates"
    run_stage "$run.train${keep_schedule:+.$updates}" train "$run_dir" "$seed"
    run_stage "$run.test${keep_schedule:+.$updates}" score "$run_dir" "$seed" "$@"
  done
}

# train RUN_DIR SEED
train() {
  local log_file=$1/train.log
  local arguments=("$data_dir" --task "$fairseq_task" ${normalization[@]+"${normalization[@]}"} "${model[@]}" --seed "$2"
    "${device[@]}" --criterion lra_cross_entropy --dropout "$dropout" --attention-dropout 0.0 --act-dropout 0.0
    --sen-rep-type mp --batch-size "$step" --update-freq "$update_freq" --optimizer adam --lr "$lr"
    --adam-betas '(0.9, 0.98)' --adam-eps 1e-8 --weight-decay "$decay" --clip-norm 1.0 --lr-scheduler linear_decay
    --warmup-updates "$warmup" --warmup-init-lr 1e-07 --warmup-power "$power" --end-learning-rate 0.0
    --total-num-update "$total" --max-update "$updates" --best-checkpoint-metric accuracy
    --maximize-best-checkpoint-metric --no-epoch-checkpoints --keep-interval-updates 1 --save-dir "$1/checkpoints"
    --log-format json --log-interval "$([[ $smoke ]] && echo 1 || echo 20)" --num-workers "$num_workers"
    ${extra[@]+"${extra[@]}"})
  printf '%q ' fairseq-mega-train "${arguments[@]}" >"$1/train.command"
  [[ ! -e $1/checkpoints/checkpoint_last.pt ]] || log "going on from $1/checkpoints/checkpoint_last.pt"
  log "training $updates updates; everything is logged in $log_file"
  python -m fairseq_mega.cli.lra_results train "${arguments[@]}" 2>&1 |
    python "$repo_root/fairseq_mega/reports/log_progress.py" --log "$log_file" --updates "$updates" ||
    fail_with_log "$log_file" fairseq-mega-train
  require_file "$1/checkpoints/checkpoint_best.pt" "the training ended without a best checkpoint; see $log_file"
}

# score RUN_DIR SEED SETTING...
score() {
  local run_dir=$1 seed=$2 setting settings=()
  shift 2
  for setting in "$@" "task=$task_name" "published_updates=$published" "schedule_updates=$total" \
    "precision=$precision" "gpus=$gpus"; do
    settings+=(--setting "$setting")
  done
  python -m fairseq_mega.cli.lra_results test "$data_dir" --task "$fairseq_task" \
    --path "$run_dir/checkpoints/checkpoint_best.pt" --log "$run_dir/train.log" \
    --train-command "$run_dir/train.command" --json "$results/$run.json" --label "$run" \
    --benchmark "lra${smoke:+-smoke}" --command "$command_line" --seed "$seed" --batch "$batch" --test-batch "$step" \
    --early-epoch "$early" ${test_device[@]+"${test_device[@]}"} "${settings[@]}"
}
