#!/usr/bin/env bash
# MEGA, Table 2: the Long Range Arena from the data to the numbers.
# Trains MEGA, MEGA-chunk, the published Transformers and S4D (no Transformer on Path-X) with the recipes of the six
# tasks, scores them on the test sets and prints the measured rows of Table 2 beside the paper's. With Text among the
# tasks, speed and memory of training on 4K tokens are measured beside the Transformer's. The rate of the Transformers
# is ours, as their settings were not published; --set transformer:optimization.lr=RATE changes it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
reproduce lra mega/table2 "$@"
