#!/usr/bin/env bash
# MEGALODON, Table 8: WikiText-103 from the text to the perplexity.
# Trains the 252M model with the data of MEGA's Table 5, and scores the test text with its memory carried along.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
reproduce table5 megalodon/table8 "$@"
