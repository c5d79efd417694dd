#!/usr/bin/env bash
# Trains small MEGA, MEGALODON and Transformer classifiers of equal size on the same data and scores them; see --help.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
start fairseq_mega.lab.comparisons classifiers "$@"
