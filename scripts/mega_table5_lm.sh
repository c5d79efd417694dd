#!/usr/bin/env bash
# MEGA, Table 5: WikiText-103 and enwik8 from the text to the numbers; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

reproduce mega/table5 table5 "$@" 3<<'HELP'
usage: bash scripts/mega_table5_lm.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Prepares the text, trains MEGA-chunk with the published recipe, scores the test text with its memory carried along and
prints the measured rows of Table 5 beside the paper's.

  --where task=LIST wikitext103, enwik8 (default: both)
  --work-dir DIR    the same as --out
  --data-dir DIR    folder with DIR/wikitext-103/data-bin and DIR/enwik8/data-bin (default: outputs in the checkout)
  --results-dir DIR folder for the JSON result files (default: results in the work folder)
  --only-train      stop after the training
HELP
