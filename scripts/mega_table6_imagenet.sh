#!/usr/bin/env bash
# MEGA, Table 6: ImageNet-1k from the archives or folders to the numbers.
# Trains MEGA's image classifier of 90M parameters and DeiT-B for 300 epochs each with the published recipes, scores
# the best and the last epoch on the validation images and prints the measured rows of Table 6 beside the paper's.
# --data is the folder above train and val, each with a folder per class; fairseq-mega-prepare imagenet unpacks the
# archives ILSVRC2012_{img_train,img_val}.tar and ILSVRC2012_devkit_t12.tar.gz to it.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/lib.sh"
extras=images reproduce imagenet mega/table6 "$@"
