#!/usr/bin/env bash
# From nothing to a trained MEGA model that shows what it can do; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
start fairseq_mega.lab.quickstart "$@"
