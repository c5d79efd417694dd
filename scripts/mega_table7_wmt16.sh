#!/usr/bin/env bash
# MEGA, Table 7: WMT'16 English-German from the archives to the scores.
# Downloads and prepares the data (40 GB in --data DIR, default: outputs/wmt16 in the checkout), trains MEGA base and
# the Transformer of the same size, averages checkpoints, translates newstest2014 and prints the measured rows of Table
# 7 beside the paper's. --set evaluate.average=N averages the last N epoch checkpoints, in place of 5.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
reproduce wmt16 mega/table7 "$@"
