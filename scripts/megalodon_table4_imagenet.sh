#!/usr/bin/env bash
# MEGALODON, Table 4: ImageNet-1k from the archives or folders to the numbers.
# Trains MEGALODON's image classifier of 90M parameters, our interpretation, with the data and training of MEGA's Table
# 6 (mega_table6_imagenet.sh --help describes the folders), and scores the best and the last epoch on the validation
# images.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
extras=images reproduce imagenet megalodon/table4 "$@"
