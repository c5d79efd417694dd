#!/usr/bin/env bash
# Trains language models of equal size on the same text, Transformers, MEGA and MEGALODON, and scores them; see --help.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
start fairseq_mega.lab.comparisons language_models "$@"
