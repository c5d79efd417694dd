#!/usr/bin/env bash
# MEGA, Figure 4: accuracy over the dimensions of the EMA and over the chunk; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

reproduce mega/figure4 lra "$@" 3<<'HELP'
usage: bash scripts/mega_figure4_ablations.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Trains MEGA on Text and Image with 0 to 32 dimensions N of the moving average (0: none), and with N = 16 in chunks of 16
to 512 and with full attention; prints the accuracies and plots both. N = 16 with full attention is the model of Table 2.

  --where task=LIST text, image (default: both)
  --where name=LIST n0, n1, n2, n4, n8, n16, n32 of the left panel, c16, c32, c64, c128, c256, c512, full of the right one
                    (default: all)
  --set n16:model.encoder_n_dim=N
                    another point of the left panel, with --where name=n16
  --set 'n*:model.encoder_chunk_size=C'
                    chunk of the left panel (default: -1, full attention)
  --output FILE     the plot (default: figure4.png in the folder of --out)
HELP
