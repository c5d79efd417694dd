#!/usr/bin/env bash
# MEGALODON, Figure 4: training speed beside a Llama-style Transformer; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

reproduce megalodon/figure4 megalodon "$@" 3<<'HELP'
usage: bash scripts/megalodon_figure4_speed.sh [OPTION]...

Measures forward and backward passes of one device over 4K and 32K made-up tokens: MEGALODON and a Llama-style Transformer
with fused attention. Sizes: 7b, the paper's, for a GPU of 80 GB with --precision bf16; 200m, for one of 24 GB; 11m, for
a laptop. Nothing is trained.

  --where task=LIST sizes, for instance 11m (default: 7b,200m,11m)
  --where name=LIST megalodon, llama (default: all)
  --output FILE     the plot (default: megalodon-figure4.png in the folder of --out)
HELP
