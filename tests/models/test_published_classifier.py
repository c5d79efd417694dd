"""MEGA classifiers against the published code: its outputs, its flags, its names of tensors."""

from argparse import Namespace
from pathlib import Path

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_mega.convert import convert_checkpoint
from fairseq_mega.models.mega_classifier import MegaClassifier
from fairseq_mega.modules.gated_attention import GatedAttention
from tests.support.tiny_classifier import build, task

GOLDENS = Path(__file__).parent.parent / "goldens"


def close(got, want):
    assert (got - want).abs().max() <= 2e-5 + 1e-4 * want.abs().max()


# Flags of the published recipes that concern the model and the task.
RECIPES = {
    "mega_lra_listop": "--task lra-text --input-type text --encoder-layers 6 --n-dim 16 --chunk-size 128 "
    "--activation-fn silu --attention-activation-fn softmax --norm-type layernorm --sen-rep-type mp --dropout 0.1",
    "mega_lra_aan": "--task lra-text --input-type text --encoder-layers 6 --n-dim 16 --chunk-size 128 "
    "--activation-fn silu --attention-activation-fn softmax --norm-type scalenorm --sen-rep-type mp --dropout 0.1",
    "mega_lra_cifar10": "--task lra-image --input-type image --pixel-normalization 0.48 0.24 --encoder-layers 8 "
    "--n-dim 16 --chunk-size 128 --activation-fn silu --attention-activation-fn laplace --norm-type batchnorm "
    "--sen-rep-type mp --encoder-normalize-before --dropout 0.0",
    "mega_sc_raw_base": "--task speech_commands --encoder-normalize-before --dropout 0.0 --sentence-class-num 10 "
    "--max-positions 16000 --sc-dropped-rate 0.",
}
COMMON = "--criterion lra_cross_entropy --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric "
COMMON += "--optimizer adam --lr 0.001 --clip-norm 1.0 --attention-dropout 0.0 --act-dropout 0.0 --weight-decay 0.01 "
COMMON += "--batch-size 64 --sentence-avg --max-sentences-valid 256 --required-batch-size-multiple 1 "
COMMON += "--ddp-backend c10d --find-unused-parameters"


@pytest.mark.parametrize("arch", RECIPES)
def test_published_flags(arch):
    """The recipes' flags are understood, say what the architectures say by themselves, and reach the model."""

    def configuration(flags):
        arguments = ["data", "--arch", arch, *flags.split(), *COMMON.split()]
        return convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), arguments))

    text = "lra-text" in RECIPES[arch]
    given, bare = configuration(RECIPES[arch]), configuration(RECIPES[arch].split(" --")[0])
    if arch == "mega_lra_cifar10":
        assert list(given.task.pixel_normalization) == [0.48, 0.24]
    with torch.device("meta"):
        model, default = (
            MegaClassifier.build_model(cfg.model, task("text" if text else "image", 2 if arch.endswith("aan") else 1))
            for cfg in (given, bare)
        )
    attentions = [attention for attention in model.modules() if isinstance(attention, GatedAttention)]
    (other, *_) = (attention for attention in default.modules() if isinstance(attention, GatedAttention))
    chunk = 1000 if arch == "mega_sc_raw_base" else 128
    assert [(attention.chunk_size, attention.function) for attention in attentions] == [(chunk, other.function)] * len(
        model.encoder.layers
    )
    ours = [line for line in str(model).splitlines() if "relative_bias" not in line]
    assert ours == [line for line in str(default).splitlines() if "relative_bias" not in line]


@pytest.fixture(scope="module")
def published():
    """The converted published classifier."""
    converted = convert_checkpoint(torch.load(GOLDENS / "lra_classifier.official.pt"), "lra_classifier.official.pt")
    text = task(symbols=26)
    model = MegaClassifier.build_model(converted["args"], text)
    model.load_state_dict(converted["model"])
    return model.eval()


def test_published_outputs(published):
    expected = torch.load(GOLDENS / "lra_classifier.expected.pt")
    inputs, outputs = expected["inputs"], expected["outputs"]
    close(published(**inputs), outputs["logits"])
    close(published.represent(inputs["src_tokens"]), outputs["sentence_rep"])
    hidden, padding_mask = published.encoder(inputs["src_tokens"])
    close(hidden.transpose(0, 1), outputs["last_state"][: hidden.size(1)])
    assert padding_mask.equal(inputs["src_tokens"].eq(1))


def test_published_names_of_images():
    names = {"encoder.encoder.embed_tokens.weight": torch.ones(4), "encoder.encoder.embed_tokens.bias": torch.ones(4)}
    names["encoder.encoder.final_norm.norm.weight"] = torch.ones(4)
    names["encoder.encoder.layers.0.mega_layer.move.alpha"] = torch.ones(8, 3, 1)
    names["classifier.0.0.weight"] = torch.ones(6, 4)
    names["sentence_projection_layer.weight"] = torch.ones(2, 6)
    args = Namespace(arch="mega_lra_cifar10", n_dim=3, norm_type="batchnorm", encoder_normalize_before=True)
    converted = convert_checkpoint({"args": args, "model": names}, "x.pt")
    assert set(converted["model"]) == {
        *("encoder.embedding.tokens.weight", "encoder.embedding.tokens.bias", "encoder.final_norm.weight"),
        *("encoder.layers.0.attention.ema.delta", "head.hidden.0.weight", "head.output.weight"),
    }
    assert set(converted["model"]) <= set(build(kind="image", normalize_before=True).state_dict())
    assert converted["args"].encoder_n_dim == 3 and converted["args"].normalize_before is True
    assert converted["args"].normalization_type == "batchnorm" and not hasattr(converted["args"], "norm_type")
