#!/usr/bin/env bash
# Language models of equal size on the same text, for a CPU: Transformers, MEGA and MEGALODON.
# Trains fairseq's transformer_lm and llama_lm (RMS norms, rotary positions, SwiGLU), mega_lm and megalodon_lm (also
# with --residual-hops 1), four layers of width 128 with equally many parameters, for the same number of updates on the
# same number of tokens, with the same optimiser; then scores the test text: the Transformers with and without a
# sliding context, MEGA and MEGALODON over contexts of 1, 2, 8 and 32 chunks and over the whole text at once. --data is
# a folder of words made by fairseq-mega-prepare; of bytes, with plain tied tables in place of adaptive ones,
# fairseq-mega-reproduce comparison/bytes --gpus 0 trains the same models. Contexts that end anywhere, not with a line,
# so that they differ in the memory only: --where name=mega,megalodon,megalodon_one_hop
# --set 'evaluate.contexts=[{exact_contexts: [128, 256, 1024, 4096], segments: [1]}]'.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
reproduce comparison comparison/wikitext2 --skip-setup --gpus 0 "$@"
