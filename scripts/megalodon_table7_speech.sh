#!/usr/bin/env bash
# MEGALODON, Table 7: raw speech (SC10) from the recordings to the numbers; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

reproduce megalodon/table7 lra "$@" 3<<'HELP'
usage: bash scripts/megalodon_table7_speech.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Trains MEGALODON-chunk on ten words of Speech Commands, with the data of MEGA's Table 4.
HELP
