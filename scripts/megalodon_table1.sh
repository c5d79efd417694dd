#!/usr/bin/env bash
# MEGALODON, Table 1: academic benchmarks, for a checkpoint of your own.
# usage: bash scripts/megalodon_table1.sh CHECKPOINT DATA OUT [OPTION of fairseq-mega-lm-eval run]...
#        bash scripts/megalodon_table1.sh --smoke OUT
# Scores a language model by lm-evaluation-harness (the extra lm-eval of setup.py), which downloads the tasks of
# examples/megalodon/table1.yaml, and writes its results to OUT. DATA is the folder of the model's dictionary. --smoke
# trains a toy and scores it on an invented task.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
tasks=$repo_root/examples/megalodon task=megalodon_table1
if [[ ${1-} == --smoke && $# -eq 2 ]]; then
  smoke_weights "$2"
  tasks=$2/tasks task=invented
  mkdir -p "$tasks"
  printf '{"text": "A ship %s"}\n' came went sank >"$tasks/items.jsonl"
  cat >"$tasks/invented.yaml" <<END
task: invented
dataset_path: json
dataset_kwargs: {data_files: {test: $tasks/items.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: A ship
doc_to_choice: [came, went, sank]
doc_to_target: "{{text[7:]}}"
metric_list: [{metric: acc}]
END
  set -- "${weights[@]}" "$2" --device cpu
fi
score_checkpoint 3 "$@"
checkpoint=$1 data=$2 out=$3
shift 3
exec python -m fairseq_mega.lab.evaluate.lm_eval_command run --model fairseq_mega \
  --model_args "path=$checkpoint,data=$data" --include_path "$tasks" --tasks "$task" --output_path "$out" "$@"
