#!/usr/bin/env bash
# enwik8 as bytes, from the archive to binarised data; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
start fairseq_mega.lab.prepare enwik8 "$@"
