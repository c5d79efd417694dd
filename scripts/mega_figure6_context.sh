#!/usr/bin/env bash
# MEGA, Figure 6: perplexity over the context and over the chunk size; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

reproduce mega/figure6 table5 "$@" 3<<'HELP'
usage: bash scripts/mega_figure6_context.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Scores WikiText-103's test text with the model of Table 5, which is trained first where it is missing: in K = 100, 75, 50,
25, 15, 10 and 5 segments at chunk 2048, and in 10 segments at chunks of 512 to 3072; plots both.

  --work-dir DIR    the same as --out
  --data-dir DIR    folder with DIR/wikitext-103/data-bin (default: outputs in the checkout)
  --path FILE       a trained checkpoint instead; requires --data, its data folder
  --set 'evaluate.contexts=[{segments: [LIST of K], chunk_size: [C]}, {segments: [K], chunk_size: [LIST of C]}]'
                    other points of the left and of the right panel
  --output FILE     the plot (default: figure6.png in the folder of --out)
HELP
