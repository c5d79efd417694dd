"""fairseq's configurations are composed from one store, which they leave as it is."""

import copy
from argparse import Namespace
from typing import Dict, List

import pytest
from fairseq import options
from fairseq.data import encoders
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.registry import REGISTRIES
from hydra.core.config_store import ConfigStore


def composed(rate: str) -> List[float]:
    given = ["data", "--task", "translation", "--arch", "mega", "--lr-scheduler", "inverse_sqrt", "--lr", rate]
    parsed = options.parse_args_and_arch(options.get_training_parser(), given)
    return list(convert_namespace_to_omegaconf(parsed).lr_scheduler.lr)


def test_the_store_is_not_copied() -> None:
    store = ConfigStore.instance()
    assert copy.deepcopy([store])[0] is store


def test_one_configuration_is_not_the_next_ones_default() -> None:
    node = copy.deepcopy(ConfigStore.instance()._load("lr_scheduler/inverse_sqrt.yaml").node)
    assert [composed(rate) for rate in ("0.25", "0.5", "0.25")] == [[0.25], [0.5], [0.25]]
    assert ConfigStore.instance()._load("lr_scheduler/inverse_sqrt.yaml").node == node


def test_an_error_is_raised_without_a_record_of_all_options(caplog: pytest.LogCaptureFixture) -> None:
    parsed = options.parse_args_and_arch(options.get_generation_parser(), ["data", "--path", "x"])
    parsed.beam = None
    with pytest.raises(Exception, match="generation.beam=null"):
        convert_namespace_to_omegaconf(parsed)
    assert not caplog.records


@pytest.mark.parametrize("given", [{}, {"sentence_avg": False}, {"sentence_avg": True}])
def test_a_switch_that_follows_another_one(given: Dict[str, bool]) -> None:
    """Also in a checkpoint without the option, such as a converted one: its loss is that of a token."""
    options = Namespace(criterion="cross_entropy", task="translation", arch="mega", **given)
    cfg = convert_namespace_to_omegaconf(options)
    assert cfg.criterion.sentence_avg is cfg.optimization.sentence_avg is given.get("sentence_avg", False)


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in ("bpe", "tokenizer") for name in sorted(REGISTRIES[kind]["registry"])]
)
def test_every_encoder_has_its_place(kind: str, name: str) -> None:
    given = ["data", "--path", "x", "--task", "translation", f"--{kind}", name]
    given += ["--source-lang", "en", "--target-lang", "de"]
    parsed = options.parse_args_and_arch(options.get_generation_parser(), given)
    assert convert_namespace_to_omegaconf(parsed)[kind]._name == name


@pytest.mark.parametrize("name", ["characters", "bytes"])
def test_an_encoder_without_options_is_built(name: str) -> None:
    parsed = options.parse_args_and_arch(options.get_generation_parser(), ["data", "--path", "x", "--bpe", name])
    encoder = encoders.build_bpe(convert_namespace_to_omegaconf(parsed).bpe)
    assert encoder.encode("a b") != "a b" and encoder.decode(encoder.encode("a b")) == "a b"
