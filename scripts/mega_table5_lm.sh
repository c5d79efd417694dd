#!/usr/bin/env bash
# MEGA, Table 5: WikiText-103 and enwik8 from the text to the numbers.
# Prepares the text, trains MEGA-chunk with the published recipe, scores the test text with its memory carried along
# and prints the measured rows of Table 5 beside the paper's. Data are in DIR/wikitext-103/data-bin and
# DIR/enwik8/data-bin of --data DIR (default: outputs in the checkout).
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
reproduce table5 mega/table5 "$@"
