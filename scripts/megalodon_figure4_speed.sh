#!/usr/bin/env bash
# MEGALODON, Figure 4: training speed beside a Llama-style Transformer.
# Measures forward and backward passes of one device over 4K and 32K invented tokens: MEGALODON and a Llama-style
# Transformer with fused attention. Sizes (--where task=LIST): 7b, the paper's, for a GPU of 80 GB with --precision
# bf16; 200m, for one of 24 GB; 11m, for a laptop. Nothing is trained.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
reproduce megalodon megalodon/figure4 "$@"
