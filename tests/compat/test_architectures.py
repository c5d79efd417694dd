"""Names of models and tasks in configurations: looked up before anything is built."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
from fairseq import models, tasks
from fairseq.models import FairseqLanguageModel
from fairseq.models.fconv_lm import FConvLanguageModel
from fairseq.models.transformer_lm import TransformerLanguageModel

from fairseq_mega.compat.versions.architectures import UnexpectedName, expect_models_of
from fairseq_mega.models.mega_lm import MegaLanguageModel
from tests.support import tiny_lm


@pytest.mark.parametrize("cfg", [Namespace(_name="mega_xl"), Namespace(arch="mega_xl")])
def test_an_unknown_model_is_named(cfg: Namespace) -> None:
    with pytest.raises(UnexpectedName, match="--arch mega_xl is unknown: give the --user-dir"):
        models.build_model(cfg, tiny_lm.task())


@pytest.mark.parametrize("cfg", [Namespace(_name="mega_task"), Namespace(task="mega_task")])
def test_an_unknown_task_is_named(cfg: Namespace) -> None:
    with pytest.raises(UnexpectedName, match="--task mega_task is unknown: give the --user-dir"):
        tasks.setup_task(cfg)


def test_another_kind_is_refused_before_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    monkeypatch.setattr(FConvLanguageModel, "build_model", lambda cfg, task: built.append(cfg))
    with expect_models_of(MegaLanguageModel), pytest.raises(UnexpectedName, match="FConvLanguageModel, but a Mega"):
        models.build_model(Namespace(_name="fconv_lm"), tiny_lm.task())
    assert not built
    with expect_models_of(FairseqLanguageModel):
        models.build_model(Namespace(_name="fconv_lm"), tiny_lm.task())
    models.build_model(Namespace(_name="fconv_lm"), tiny_lm.task())
    assert len(built) == 2


def test_a_model_may_build_others_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = SimpleNamespace()

    def build(cfg: object, task: object) -> object:
        return models.build_model(Namespace(_name="fconv_lm"), task)

    monkeypatch.setattr(TransformerLanguageModel, "build_model", build)
    monkeypatch.setattr(FConvLanguageModel, "build_model", lambda cfg, task: inner)
    with expect_models_of(TransformerLanguageModel):
        assert models.build_model(Namespace(_name="transformer_lm"), tiny_lm.task()) is inner
