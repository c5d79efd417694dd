#!/usr/bin/env bash
# 40 MB of English from a Debian package, as bytes or words, to binarised data; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
start fairseq_mega.lab.prepare gcide "$@"
