"""The published training commands are understood as they are, and build the published models."""

import shlex

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_mega.modules.gated_attention import GatedAttention
from tests.support.tiny_classifier import task as classification
from tests.support.tiny_mega import task as text

ADAM = (
    "--optimizer adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-8 --lr-scheduler linear_decay --end-learning-rate 0.0 "
)
ADAM += "--warmup-init-lr '1e-07' --seed 1 --save-dir run --log-format simple --log-interval 100 --num-workers 0 "
CLASSIFY = (
    "--ddp-backend c10d --find-unused-parameters --criterion lra_cross_entropy --best-checkpoint-metric accuracy "
)
CLASSIFY += (
    "--maximize-best-checkpoint-metric --clip-norm 1.0 --attention-dropout 0.0 --act-dropout 0.0 --sentence-avg "
)
CLASSIFY += "--keep-last-epochs 1 " + ADAM
LRA = "--n-dim 16 --activation-fn 'silu' --sen-rep-type 'mp' " + CLASSIFY
TEXT = "--task lra-text --input-type text --attention-activation-fn 'softmax' --dropout 0.1 " + LRA
IMAGE = "--task lra-image --input-type image --attention-activation-fn 'laplace' --dropout 0.0 "
IMAGE += "--encoder-normalize-before " + LRA
HALF = IMAGE + "--pixel-normalization 0.5 0.5 "
SPEECH = "--task speech_commands --encoder-normalize-before --dropout 0.0 --weight-decay 0.01 --batch-size 20 "
SPEECH += "--update-freq 1 --max-update 250000 --total-num-update 250000 --warmup-updates 10000 "
SPEECH += (
    "--required-batch-size-multiple 1 --sentence-class-num 10 --max-positions 16000 --sc-dropped-rate 0. " + CLASSIFY
)
STREAMS = "--task mega_language_modeling --ddp-backend no_c10d --valid-subset valid --activation-fn 'silu' "
STREAMS += "--attention-activation-fn 'softmax' --decoder-n-dim 16 --normalize-before --no-affine-final-norm "
STREAMS += "--update-freq 1 --variant-block-multiple-min 2 --normalization-type 'layernorm' --truncation-length 8192 "
STREAMS += "--rel-pos-bias 'rotary' --lr 5e-3 --clip-norm 0.25 --total-num-update 400000 --max-update 400000 "
STREAMS += "--warmup-updates 24000 --weight-decay 0.1 --no-epoch-checkpoints --sample-break-mode 'complete' "
STREAMS += "--valid-block 'splits:10' " + ADAM
# Architecture, flags, parameters (BENCHMARKS and ARCHITECTURE; text embeddings are of 25 rows).
COMMANDS = {
    "mega_lra_listop": (
        TEXT
        + "--encoder-layers 6 --chunk-size -1 --norm-type 'layernorm' --lr 0.001 --weight-decay 0.01 --batch-size 64 "
        "--update-freq 1 --max-update 90000 --max-sentences-valid 256 --total-num-update 90000 --warmup-updates 3000 "
        "--required-batch-size-multiple 1",
        602_658,
    ),
    "mega_lra_imdb": (
        TEXT
        + "--encoder-layers 4 --chunk-size -1 --norm-type 'scalenorm' --lr 0.004 --weight-decay 0.01 --batch-size 25 "
        "--update-freq 2 --max-update 25000 --max-sentences-valid 100 --total-num-update 25000 --warmup-updates 10000 "
        "--required-batch-size-multiple 1",
        957_204 + 25 * 128,
    ),
    "mega_lra_aan": (
        TEXT
        + "--encoder-layers 6 --chunk-size 128 --norm-type 'scalenorm' --lr 0.003 --weight-decay 0.04 --batch-size 8 "
        "--update-freq 8 --max-update 91960 --max-sentences-valid 64 --total-num-update 91960 --warmup-updates 10000",
        1_405_318 + 25 * 128,
    ),
    "mega_lra_cifar10": (
        IMAGE + "--pixel-normalization 0.48 0.24 --encoder-layers 8 --chunk-size -1 --norm-type 'batchnorm' --lr 0.01 "
        "--weight-decay 0.02 --batch-size 50 --update-freq 1 --max-update 180000 --total-num-update 180000 "
        "--warmup-updates 9000 --required-batch-size-multiple 1",
        2_839_096,
    ),
    "mega_lra_pf32": (
        HALF
        + "--encoder-layers 6 --chunk-size 128 --norm-type 'batchnorm' --lr 0.01 --weight-decay 0.01 --batch-size 128 "
        "--update-freq 1 --max-update 250000 --total-num-update 250000 --warmup-updates 50000 "
        "--max-sentences-valid 512",
        1_376_122,
    ),
    "mega_lra_pf128": (
        HALF + "--encoder-layers 4 --chunk-size 4096 --norm-type 'syncbatchnorm' --lr 0.01 --weight-decay 0.01 "
        "--batch-size 2 --update-freq 8 --max-update 125000 --total-num-update 125000 --warmup-updates 25000 "
        "--warmup-power 2 --max-sentences-valid 12",
        283_644,
    ),
    "mega_sc_raw_base": (SPEECH + "--lr 0.01", 343_134),
    "mega_sc_raw_big": (SPEECH + "--lr 0.008", 475_890),
    "mega_wmt_en_de": (
        "--ddp-backend c10d --valid-subset valid -s 'en' -t 'de' --eval-bleu --eval-bleu-remove-bpe '@@ ' "
        "--best-checkpoint-metric bleu --maximize-best-checkpoint-metric --eval-tokenized-bleu "
        "--eval-bleu-detok 'space' "
        "--encoder-layers 6 --decoder-layers 6 --activation-fn 'silu' --attention-activation-fn 'softmax' "
        "--encoder-n-dim 16 --encoder-chunk-size -1 --normalization-type 'layernorm' --truncation-length 0 --lr 1e-3 "
        "--clip-norm 1.0 --label-smoothing 0.1 --max-tokens 8192 --max-sentences 1024 --share-all-embeddings "
        "--dropout 0.15 --attention-dropout 0.1 --hidden-dropout 0.1 --activation-dropout 0.1 --weight-decay 0.05 "
        "--total-num-update 500000 --warmup-updates 4000 --criterion label_smoothed_cross_entropy --max-update 500000 "
        "--keep-last-epochs 5 --keep-interval-updates 1 --update-freq 1 --save-interval-updates 5000 " + ADAM,
        46_359_534 + 512 * 33_000,
    ),
    "mega_lm_adaptive_big": (
        STREAMS + "--max-target-positions 8096 --decoder-hidden-dim 2048 --decoder-chunk-size 1024 --max-tokens 6144 "
        "--variant-block-multiple-max 6 --criterion adaptive_loss --dropout 0.3 --attention-dropout 0.1 "
        "--hidden-dropout 0.1",
        252_237_824,
    ),
    "mega_lm_enwik8_base": (
        STREAMS + "--max-target-positions 10384 --decoder-chunk-size 2048 --max-tokens 8192 "
        "--variant-block-multiple-max 4 --criterion 'cross_entropy' --share-decoder-input-output-embed --dropout 0.1 "
        "--attention-dropout 0.0 --hidden-dropout 0.0",
        39_137_792,
    ),
}
SYMBOLS = {"mega_wmt_en_de": 32_996, "mega_lm_adaptive_big": 267_740, "mega_lm_enwik8_base": 204}


@pytest.mark.parametrize("arch", COMMANDS)
def test_published_commands(arch):
    """Published commands build their model; --task mega_language_modeling replaces the published language_modeling."""
    flags, count = COMMANDS[arch]
    arguments = ["data", "-a", arch, *shlex.split(flags)]
    cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))
    if arch in SYMBOLS:
        task = text(SYMBOLS[arch])
    else:
        task = classification("text" if "lra-text" in flags else "image", 2 if arch.endswith("aan") else 1, 21)
    with torch.device("meta"):
        model = ARCH_MODEL_REGISTRY[arch].build_model(cfg.model, task)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    functions = {part.function for part in model.modules() if isinstance(part, GatedAttention)}
    assert functions == {"laplace" if "lra-image" in flags or "speech" in flags else "softmax"}
