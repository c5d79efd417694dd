#!/usr/bin/env bash
# MEGALODON, Figure 1 scaled down: training loss over bytes beside a Llama-style Transformer.
# Trains MEGALODON (also with --residual-hops 1) and a Llama-style Transformer of equally many parameters, 1.4 million,
# on the same 16 million bytes of a dictionary in the same order, three seeds each; then scores the test text in
# contexts of 1, 2, 4 and 8 times the training's, with MEGALODON also as one stream. Prints the losses, and draws them
# over bytes and context.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
reproduce megalodon megalodon/figure1 "$@"
