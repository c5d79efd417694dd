#!/usr/bin/env bash
# MEGALODON, Table 5: PG-19 from the books to the perplexity per word.
# Downloads the books (12 GB), trains the 1.3B model and scores each test book from its beginning to its end.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
reproduce megalodon megalodon/table5 "$@"
