#!/usr/bin/env bash
# MEGA, Table 3: attention functions on Text and Image; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

reproduce mega/table3 lra "$@" 3<<'HELP'
usage: bash scripts/mega_table3_attention_functions.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Trains MEGA with softmax, squared-ReLU and Laplace attention on Text and Image and prints the measured rows of Table 3
beside the paper's. The usual function of each task is also in Table 2.

  --where task=LIST text, image (default: both)
  --where attention=LIST
                    softmax, relu2, laplace (default: all)
  --set model.encoder_chunk_size=C
                    attention chunk (default: -1, full attention, as in the paper)
HELP
