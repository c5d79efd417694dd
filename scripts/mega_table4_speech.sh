#!/usr/bin/env bash
# MEGA, Table 4: raw speech (SC10) from the recordings to the numbers; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

reproduce mega/table4 lra "$@" 3<<'HELP'
usage: bash scripts/mega_table4_speech.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Prepares ten words of Speech Commands as 16,000 raw samples each, trains MEGA-chunk with the published recipe, scores it
on the test clips and prints the measured rows of Table 4 beside the paper's.

  --where name=LIST base, big (default: all)
  --set model.encoder_chunk_size=C
                    attention chunk (default: 1000, as in the paper)
  --set task.sc_scaling=once
                    divide samples by 32768 once, not twice as in the published code
HELP
