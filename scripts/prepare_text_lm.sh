#!/usr/bin/env bash
# Your own text to binarised data for language modelling; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
start fairseq_mega.lab.prepare text-lm "$@"
