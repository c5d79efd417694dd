#!/usr/bin/env bash
# MEGALODON, Figure 1 scaled down: training loss over bytes beside a Llama-style Transformer; run with --help.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

reproduce megalodon/figure1 megalodon "$@" 3<<'HELP'
usage: bash scripts/megalodon_figure1_losses.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Trains MEGALODON (also with --residual-hops 1) and a Llama-style Transformer of equally many parameters, 1.4 million, on
the same 16 million bytes of a dictionary in the same order, three seeds each; then scores the test text in contexts of 1,
2, 4 and 8 times the training's, with MEGALODON also as one stream. Prints the losses, and draws them over bytes and context.

  --where name=LIST megalodon, megalodon_one_hop, llama (default: all)
  --set optimization.lr=RATE
                    peak of the learning rate (default: the rate chosen for each model)
  --output FILE     the plot (default: megalodon-figure1.png in the folder of --out)
HELP
