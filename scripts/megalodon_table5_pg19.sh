#!/usr/bin/env bash
# MEGALODON, Table 5: PG-19 from the books to the perplexity per word; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

reproduce megalodon/table5 megalodon "$@" 3<<'HELP'
usage: bash scripts/megalodon_table5_pg19.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Downloads the books (12 GB), trains the 1.3B model and scores each test book from its beginning to its end.
HELP
