#!/usr/bin/env bash
# MEGALODON, Figure 5: perplexity over contexts of 4K to 2M tokens, scaled down.
# Scores the test books of PG-19, one after the other, with the model of Table 5, which is trained first where it is
# missing.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
reproduce megalodon megalodon/figure5 "$@"
