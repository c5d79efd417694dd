#!/usr/bin/env bash
# MEGA, Table 2: the Long Range Arena from the data to the numbers; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

reproduce mega/table2 lra "$@" 3<<'HELP'
usage: bash scripts/mega_table2_lra.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Trains MEGA, MEGA-chunk, the published Transformers and S4D (no Transformer on Path-X) with the recipes of the six tasks,
scores them on the test sets and prints the measured rows of Table 2 beside the paper's. With Text among the tasks, speed
and memory of training on 4K tokens are measured beside the Transformer's.

  --where task=LIST listops, text, retrieval, image, pathfinder, pathx (default: all)
  --where name=LIST mega, mega_chunk, transformer, s4d (default: all)
  --set mega_chunk:model.encoder_chunk_size=C
                    chunk of MEGA-chunk (default: 128, Path-X 4096)
  --set transformer:optimization.lr=RATE
                    peak rate of the Transformers, whose settings were not published (default: 0.001)
  --per-step N      examples of one pass on a GPU (default: the published recipe's)
  --no-speed        do not measure speed and memory
HELP
