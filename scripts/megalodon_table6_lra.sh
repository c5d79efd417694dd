#!/usr/bin/env bash
# MEGALODON, Table 6: the Long Range Arena from the data to the numbers.
# Trains MEGALODON and MEGALODON-chunk on the six tasks, with the data of MEGA's Table 2.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
reproduce lra megalodon/table6 "$@"
