#!/usr/bin/env bash
# MEGALODON, Table 7: raw speech (SC10) from the recordings to the numbers.
# Trains MEGALODON-chunk on ten words of Speech Commands, with the data of MEGA's Table 4.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
reproduce lra megalodon/table7 "$@"
