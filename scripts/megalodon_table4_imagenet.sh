#!/usr/bin/env bash
# MEGALODON, Table 4: ImageNet-1k from the archives or folders to the numbers; run with --help for the options.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

extras=images reproduce megalodon/table4 imagenet "$@" 3<<'HELP'
usage: bash scripts/megalodon_table4_imagenet.sh [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

Trains MEGALODON's image classifier of 90M parameters, our interpretation, with the data and training of MEGA's
Table 6, and scores the best and the last epoch on the validation images.

  --data DIR        folder above train and val, each with a folder per class; or a new folder, with
  --archives DIR    folder of ILSVRC2012_{img_train,img_val}.tar and ILSVRC2012_devkit_t12.tar.gz, which are unpacked
HELP
