"""Measured numbers in the running text of the documents are those of their result files."""

import json
import math
from typing import Any, Dict, List

import pytest

from tests.support.helpers import REPOSITORY

EXAMPLES = REPOSITORY / "examples"
MIB = 2**20


def scores(name: str) -> Dict[str, Any]:
    return json.loads((EXAMPLES / name).read_text(encoding="utf-8"))["scores"]


def text_of(document: str) -> str:
    return " ".join((REPOSITORY / document).read_text(encoding="utf-8").split())


def milliseconds(found: Dict[str, Any], name: str) -> str:
    return f"{1000 * found[f'{name} seconds']:,.0f} ms"


def one_sequence() -> List[str]:
    found = scores("kernels/results/layer_batch1_cpu.json")
    times = {name: milliseconds(found, f"{name} L=4096") for name in ("mega-chunk", "published-chunk", "transformer")}
    written_out = milliseconds(found, "explicit-transformer L=4096")
    gain = found["published-chunk L=4096 seconds"] / found["mega-chunk L=4096 seconds"]
    return [
        f"the chunked layer takes {times['mega-chunk']}, the published arrangement {times['published-chunk']} "
        f"({gain:.1f}x), a Transformer layer {times['transformer']}, and {written_out} with its attention written out"
    ]


def whole_layer() -> List[str]:
    two, one = (scores(f"kernels/results/layer{name}_cpu.json") for name in ("", "_batch1"))
    gains = [found["published-chunk L=4096 seconds"] / found["mega-chunk L=4096 seconds"] for found in (two, one)]
    return [f"{gains[0]:.1f}x the published arrangement at L = 4096 with two sequences and {gains[1]:.1f}x with one"]


def beam_search() -> List[str]:
    found = scores("language_modeling/results/beam_cpu.json")
    models = [*(f"mega, chunk {chunk}" for chunk in (64, 512, 2048, 8192)), "mega-full"]
    first, later = ([1000 * found[f"{name} position={at} seconds"] for name in models] for at in (0, 1000))
    bytes_first, bytes_later = ([found[f"{name} position={at} bytes"] / MIB for name in models] for at in (0, 1000))
    assert max(bytes_first) - min(bytes_first) < 0.05 and max(bytes_later[2:]) - min(bytes_later[2:]) < 0.05
    return [
        f"a step takes {min(first):.1f} to {max(first):.1f} ms and {bytes_first[0]:.1f} MiB",
        f"{later[0]:.0f} ms with chunks of 64, {later[1]:.0f} ms and {bytes_later[1]:.0f} MiB with chunks of 512, "
        f"{min(later[2:]):.0f} to {max(later[2:]):.0f} ms and {bytes_later[2]:.0f} MiB with longer ones",
    ]


def training_lengths() -> List[str]:
    found = scores("language_modeling/results/length_cpu.json")
    short, long = (found[f"mega L={length} seconds"] / length for length in (4096, 65536))
    return [f"From 4,096 to 65,536 MEGA's time per token grows by {100 * (long / short - 1):.0f} %"]


def quick_start_of_bytes() -> List[str]:
    path = "results/quickstart.json"
    result = json.loads((EXAMPLES / "language_modeling" / path).read_text(encoding="utf-8"))
    bits = result["scores"]["bits_per_token"]
    return [
        f"{result['settings']['updates']:,} updates",
        f"[**{bits:.3f}** bits per byte]({path}) ({bits * math.log(2):.3f} nats) of {result['examples']:,} bytes, "
        f"seed {result['seed']}",
    ]


def quick_start() -> List[str]:
    said = []
    for name in ("", "_again", "_busy", "_crowded", "_no_dropout", "_decode_bf16", "_decode_int8"):
        path = f"results/quickstart{name}.json"
        result = json.loads((EXAMPLES / "translation" / path).read_text(encoding="utf-8"))
        said.append(f"[**{result['scores']['sacrebleu']:.1f}**]({path})")
        count, signature = f"{result['examples']:,}", result["signatures"]["sacrebleu"]
        said.append(f"sacreBLEU on {count} of {count} held-out sentences (seed {result['seed']}, `{signature}`)")
        assert result["settings"]["precision"] == "bf16"
        assert 14.5 <= float(result["settings"]["train_minutes"]) <= 15
    return said


def small_images() -> List[str]:
    said = []
    for name in ("mega", "vit"):
        result = json.loads((EXAMPLES / f"imagenet/results/grey_cifar10/{name}.json").read_text(encoding="utf-8"))
        accuracy, count = result["scores"]["test_accuracy"], f"{result['settings']['parameters']:,} parameters)"
        said.append(f"{count} classify {accuracy:.2f} per cent" if name == "mega" else f"{count} {accuracy:.2f}.")
    return said


SAID = {
    "README.md": one_sequence,
    "examples/imagenet/README.md": small_images,
    "examples/kernels/README.md": whole_layer,
    "examples/language_modeling/README.md": lambda: [*beam_search(), *training_lengths(), *quick_start_of_bytes()],
    "examples/translation/README.md": quick_start,
}


@pytest.mark.parametrize("document", SAID)
def test_numbers_in_the_text(document: str) -> None:
    for sentence in SAID[document]():
        assert sentence in text_of(document), sentence
