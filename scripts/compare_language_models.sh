#!/usr/bin/env bash
# Trains language models of equal size on the same text, Transformers, MEGA and MEGALODON, and scores them; see --help.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

recipes=comparison/wikitext2 options=()
while [[ $# -gt 0 && $1 != -- ]]; do
  case $1 in
    --unit)
      require_value "$@"
      case $2 in
        words) recipes=comparison/wikitext2 ;;
        bytes) recipes=comparison/bytes ;;
        *) die "--unit is '$2': choose from words, bytes" ;;
      esac
      shift 2
      ;;
    --exact)
      options+=(--set 'mega*:evaluate.contexts=[{exact_contexts: [128, 256, 1024, 4096], segments: [1]}]')
      shift
      ;;
    *) options+=("$1"); shift ;;
  esac
done
reproduce "$recipes" "${recipes/\//-}" --skip-setup --gpus 0 ${options[@]+"${options[@]}"} "$@" 3<<'HELP'
usage: bash scripts/compare_language_models.sh [--data DIR] [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Trains fairseq's transformer_lm and llama_lm (RMS norms, rotary positions, SwiGLU), mega_lm and megalodon_lm (also with
--residual-hops 1), four layers of width 128 with equally many parameters, for the same number of updates on the same
number of tokens, with the same optimiser; then scores the test text: the Transformers with and without a sliding
context, MEGA and MEGALODON over contexts of 1, 2, 8 and 32 chunks and over the whole text at once. For a CPU.

  --data DIR        data folder with train, valid and test (made by scripts/prepare_*.sh)
  --unit KIND       words: adaptive tables (default); bytes: plain tied tables, for texts of decimal bytes
  --where name=LIST transformer, llama, mega, megalodon, megalodon_one_hop (default: all)
  --max-update N    updates of each model (default: 1500)
  --set optimization.lr=RATE
                    peak of the learning rate (default: 0.002 and 0.005, one after the other)
  --exact           contexts that end anywhere, not with a line, so that they differ in the memory only
HELP
