#!/usr/bin/env bash
# MEGA, Table 4: raw speech (SC10) from the recordings to the numbers.
# Prepares ten words of Speech Commands as 16,000 raw samples each, trains MEGA-chunk with the published recipe, scores
# it on the test clips and prints the measured rows of Table 4 beside the paper's. --set task.sc_scaling=once divides
# samples by 32768 once, not twice as in the published code.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
reproduce lra mega/table4 "$@"
