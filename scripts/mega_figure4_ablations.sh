#!/usr/bin/env bash
# MEGA, Figure 4: accuracy over the dimensions of the EMA and over the chunk.
# Trains MEGA on Text and Image with 0 to 32 dimensions N of the moving average (0: none), and with N = 16 in chunks of
# 16 to 512 and with full attention; prints the accuracies and plots both. N = 16 with full attention is the model of
# Table 2. Another point of the left panel: --where name=n16 --set model.encoder_n_dim=N; its chunk:
# --set model.encoder_chunk_size=C for --where name=n0,n1,n2,n4,n8,n16,n32 (default: -1, full attention).
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
reproduce lra mega/figure4 "$@"
