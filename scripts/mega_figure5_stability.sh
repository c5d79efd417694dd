#!/usr/bin/env bash
# MEGA, Figure 5: Laplace against squared-ReLU attention on Pathfinder; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

reproduce mega/figure5 lra "$@" 3<<'HELP'
usage: bash scripts/mega_figure5_stability.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Trains MEGA with Laplace and with squared-ReLU attention on Pathfinder, and plots the validation accuracy of each seed
over the updates. The run with Laplace is that of Table 2.

  --where attention=LIST
                    laplace, relu2 (default: both)
  --set model.encoder_chunk_size=C
                    attention chunk (default: -1, full attention)
  --output FILE     the plot (default: figure5.png in the folder of --out)
HELP
