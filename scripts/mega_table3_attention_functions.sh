#!/usr/bin/env bash
# MEGA, Table 3: attention functions on Text and Image.
# Trains MEGA with softmax, squared-ReLU and Laplace attention on both tasks and prints the measured rows of Table 3
# beside the paper's. The usual function of each task is also in Table 2. --set model.encoder_chunk_size=C trains in
# chunks.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
reproduce lra mega/table3 "$@"
