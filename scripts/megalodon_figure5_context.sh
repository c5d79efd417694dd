#!/usr/bin/env bash
# MEGALODON, Figure 5: perplexity over contexts of 4K to 2M tokens, scaled down; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

reproduce megalodon/figure5 megalodon "$@" 3<<'HELP'
usage: bash scripts/megalodon_figure5_context.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Scores the test books of PG-19, one after the other, with the model of Table 5, which is trained first where it is missing.

  --output FILE     the plot (default: megalodon-figure5.png in the folder of --out)
HELP
