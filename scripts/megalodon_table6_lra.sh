#!/usr/bin/env bash
# MEGALODON, Table 6: the Long Range Arena from the data to the numbers; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

reproduce megalodon/table6 lra "$@" 3<<'HELP'
usage: bash scripts/megalodon_table6_lra.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Trains MEGALODON and MEGALODON-chunk on the six tasks, with the data of MEGA's Table 2.

  --where task=LIST listops, text, retrieval, image, pathfinder, pathx (default: all)
  --where name=LIST megalodon, megalodon_chunk (default: all)
HELP
