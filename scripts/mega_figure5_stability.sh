#!/usr/bin/env bash
# MEGA, Figure 5: Laplace against squared-ReLU attention on Pathfinder.
# Trains MEGA with both, and plots the validation accuracy of each seed over the updates. The run with Laplace is that
# of Table 2.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
reproduce lra mega/figure5 "$@"
