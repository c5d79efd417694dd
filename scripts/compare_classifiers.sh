#!/usr/bin/env bash
# Trains small MEGA, MEGALODON and Transformer classifiers of equal size on the same data and scores them; see --help.
set -euo pipefail
# shellcheck source=scripts/reproduce.sh
source "$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/reproduce.sh"

recipes='' options=()
while [[ $# -gt 0 && $1 != -- ]]; do
  case $1 in
    --task)
      require_value "$@"
      case $2 in
        text | image | listops) recipes=comparison/$2 ;;
        *) die "--task is '$2': choose from text, image, listops" ;;
      esac
      shift 2
      ;;
    --help | -h) recipes=comparison/text; options+=("$1"); shift ;;
    *) options+=("$1"); shift ;;
  esac
done
[[ $recipes ]] || die "--task is needed: choose from text, image, listops"
reproduce "$recipes" "${recipes/\//-}" --skip-setup --gpus 0 ${options[@]+"${options[@]}"} "$@" 3<<'HELP'
usage: bash scripts/compare_classifiers.sh --task NAME --data DIR [OPTION]... [-- FAIRSEQ_TRAIN_OPTION...]

The Long Range Arena in miniature, for a CPU: MEGA with attention in chunks, MEGA without its moving average (N = 0), a
Transformer with full attention and MEGALODON in chunks, four layers of width 64 with equally many parameters in the
layers (N = 0 has fewer), are trained for the same number of updates on the same examples in the same order, with the
same optimiser. Then the checkpoint of best validation accuracy is scored on the test set.

  --task NAME       kind of the data: text, image or listops
  --data DIR        folder made by fairseq-mega-prepare (imdb, help-pages; cifar10, fashion-mnist; listops)
  --where name=LIST mega, mega_n0, transformer, megalodon (default: all)
  --max-update N    updates of each model (default: 1000)
  --set optimization.lr=RATE
                    peak of the learning rate (default: 0.002)
  --set model.encoder_chunk_size=C
                    attention chunk of MEGA and MEGALODON (default: 128)
  --set dataset.batch_size=N
                    examples per update (default: 64 for listops, 16 else)
  --set 'task.pixel_normalization=[MEAN, DEVIATION]'
                    mean and deviation of images (default: [0.48, 0.24], those of CIFAR-10)
HELP
