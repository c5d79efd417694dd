#!/usr/bin/env bash
# MEGA, Figure 6: perplexity over the context and over the chunk size; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

reproduce mega/figure6 table5 "$@" 3<<'HELP'
usage: bash scripts/mega_figure6_context.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Scores WikiText-103's test text with the model of Table 5, which is trained first unless it is there: in K = 100, 75, 50,
25, 15, 10 and 5 segments at chunk 2048, and in 10 segments at chunks of 512 to 3072; plots both.

  --work-dir DIR    the same as --out
  --data-dir DIR    folder with DIR/wikitext-103/data-bin (default: outputs in the checkout)
  --path FILE       a trained checkpoint instead, and with --data its folder of fairseq-preprocess
  --segments LIST   K of the left panel (default: 100,75,50,25,15,10,5)
  --chunk N         chunk of the left panel (default: 2048)
  --chunks LIST     chunks of the right panel (default: 512,1024,1536,2048,2560,3072)
  --right-segments K
                    segments of the right panel (default: 10)
  --output FILE     the plot (default: figure6.png in the folder of --out)
HELP
