"""The S4D classifiers: sizes of the published shapes, rates."""

import pytest
import torch

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.models.presets import preset, preset_names
from tests.support.tiny_classifier import build, parameters, with_inputs

CLASSES = {"s4d_lra_listop": 10, "s4d_lra_cifar10": 10}


def size(arch, kind, symbols=24):
    """Parameters: table or line; steps, modes, both projections, skip, gated map and norm a layer; final norm, head."""
    values = preset(arch)
    d, modes = values["encoder_embed_dim"], values["encoder_n_dim"] // 2
    layer = d + 2 * d * modes + 2 * d * modes * 2 + d + 2 * d * (d + 1) + 2 * d
    table = 2 * d if kind == "image" else symbols * d
    final = 2 * d if values["normalize_before"] else 0
    documents = 2 if arch.endswith("aan") else 1
    return table + values["encoder_layers"] * layer + final + documents * d * CLASSES.get(arch, 2)


@pytest.mark.parametrize("arch, kind", with_inputs(preset_names("s4d_lra")))
def test_sizes(arch, kind):
    with torch.device("meta"):
        model = build(arch, kind, 2 if arch.endswith("aan") else 1)
    assert parameters(model) == size(arch, kind)


RATES = {  # of steps and modes, in the files of state-spaces/s4
    **dict.fromkeys(("listop", "imdb", "aan"), (0.01, 0.01, 0.001)),
    "cifar10": (0.01, 0.001, 0.001),
    "pf32": (0.004, 0.001, 0.001),
    "pf128": (0.001, 0.001, 0.001),
}
TASKS = {
    "listop": "listops",
    "imdb": "text",
    "aan": "retrieval",
    "cifar10": "image",
    "pf32": "pathfinder",
    "pf128": "pathx",
}


@pytest.mark.parametrize("arch", RATES)
def test_rates_of_the_published_files(arch):
    """Steps, modes and all others learn as there: in preset and recipe, and in the built layer."""
    recipe = catalogue()[f"mega/table2/{TASKS[arch]}/s4d"].config
    rate, (others, steps, modes) = recipe["optimization"]["lr"][0], RATES[arch]
    assert rate == others
    kind = "text" if arch in ("listop", "imdb", "aan") else "image"
    built = build(f"s4d_lra_{arch}", kind, 2 if arch == "aan" else 1, encoder_layers=1, encoder_embed_dim=8)
    system = built.encoder.layers[0].state_space
    assert system.log_step.rate * rate == pytest.approx(steps)
    assert system.log_decay.rate * rate == system.frequency.rate * rate == pytest.approx(modes)
    assert all(
        preset(f"s4d_lra_{arch}").get(key) == recipe["model"].get(key)
        for key in ("state_space_rate", "state_space_step_rate")
    )


def test_steps_learn_as_the_modes_unless_said_otherwise():
    """So that a checkpoint from before the option computes what it was trained to."""
    system = build("s4d_lra", state_space_rate=0.25).encoder.layers[0].state_space
    assert system.log_step.rate == system.log_decay.rate == 0.25
