#!/usr/bin/env bash
# MEGA, Figure 4: accuracy over the dimensions of the EMA and over the chunk; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

reproduce mega/figure4 lra "$@" 3<<'HELP'
usage: bash scripts/mega_figure4_ablations.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Trains MEGA on Text and Image with 0 to 32 dimensions N of the moving average (0: none), and with N = 16 in chunks of 16
to 512 and with full attention; prints the accuracies and plots both. N = 16 with full attention is what Table 2 trains.

  --task LIST       text, image or all (default: all)
  --dims LIST       N of the left panel (default: 0,1,2,4,8,16,32)
  --chunk C         chunk of the left panel (default: -1, full attention)
  --chunks LIST     C of the right panel (default: 16,32,64,128,256,512,-1)
  --output FILE     the plot (default: figure4.png in the folder of --out)
HELP
