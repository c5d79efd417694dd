#!/usr/bin/env bash
# MEGA, Figure 6: perplexity over the context and over the chunk size.
# Scores WikiText-103's test text with the model of Table 5, which is trained first where it is missing: in K = 100,
# 75, 50, 25, 15, 10 and 5 segments at chunk 2048, and in 10 segments at chunks of 512 to 3072; plots both. Other points
# of the left and of the right panel:
# --set 'evaluate.contexts=[{segments: [LIST of K], chunk_size: [C]}, {segments: [K], chunk_size: [LIST of C]}]'.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
reproduce table5 mega/figure6 "$@"
