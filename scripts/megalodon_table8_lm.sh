#!/usr/bin/env bash
# MEGALODON, Table 8: WikiText-103 from the text to the perplexity; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

reproduce megalodon/table8 table5 "$@" 3<<'HELP'
usage: bash scripts/megalodon_table8_lm.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Trains the 252M model with the data of MEGA's Table 5, and scores the test text with its memory carried along.
HELP
