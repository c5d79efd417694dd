#!/usr/bin/env bash
# The Long Range Arena in miniature, for a CPU.
# MEGA with attention in chunks, MEGA without its moving average (N = 0), a Transformer with full attention and
# MEGALODON in chunks, four layers of width 64 with equally many parameters in the layers (N = 0 has fewer), are
# trained for the same number of updates on the same examples in the same order, with the same optimiser. Then the
# checkpoint of best validation accuracy is scored on the test set. --where task=TASK chooses the kind of --data, a
# folder made by fairseq-mega-prepare (text: imdb, own-texts; image: cifar10; listops).
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
reproduce comparison comparison/text comparison/image comparison/listops --skip-setup --gpus 0 "$@"
