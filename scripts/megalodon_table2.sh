#!/usr/bin/env bash
# MEGALODON, Table 2: questions about long documents, for a checkpoint of your own.
# usage: bash scripts/megalodon_table2.sh CHECKPOINT DATA SCROLLS OUT [OPTION of fairseq-mega-qa]...
#        bash scripts/megalodon_table2.sh --smoke OUT
# Scores a language model on NarrativeQA, Qasper and QMSum with the paper's prompts and numbers of worked examples, and
# writes OUT/narrative_qa.json, qasper.json and qmsum.json; the same command continues an interrupted run. DATA is the
# folder of the model's dictionary, SCROLLS one with narrative_qa, qasper and qmsum of tau/scrolls, each with
# train.jsonl and validation.jsonl. --smoke trains a toy and invents the questions.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
data_sets=(narrative_qa qasper qmsum)
if [[ ${1-} == --smoke && $# -eq 2 ]]; then
  smoke_weights "$2"
  for data_set in "${data_sets[@]}"; do
    mkdir -p "$2/scrolls/$data_set"
    for split in train validation; do
      for number in 1 2 3; do
        printf '{"id": "%s%s", "input": "Who came in %s?\\n\\nA ship came.", "output": "a ship"}\n' $split $number $number
      done >"$2/scrolls/$data_set/$split.jsonl"
    done
  done
  set -- "${weights[@]}" "$2/scrolls" "$2" --cpu --answer-tokens 5
fi
score_checkpoint 4 "$@"
checkpoint=$1 data=$2 scrolls=$3 out=$4
shift 4
for data_set in "${data_sets[@]}"; do
  log "$data_set"
  python -m fairseq_mega.lab.evaluate.question_answering "$data_set" --path "$checkpoint" --data "$data" \
    --questions "$scrolls/$data_set/validation.jsonl" --examples "$scrolls/$data_set/train.jsonl" \
    --output "$out/$data_set.json" "$@"
done
