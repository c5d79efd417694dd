"""Repair --bf16 of fairseq's command line, and list this package's architectures."""

import typing

from fairseq_mega.compat import hooks


def separate_bf16_from_tpu(call: hooks.Call) -> typing.Iterator[None]:
    """Make --bf16 run on CPU and GPU: fairseq's parser turns it into --tpu (event "parse")."""
    yield
    if getattr(hooks.parsed(call), "bf16", False):
        hooks.parsed(call).tpu = "--tpu" in hooks.words(call)


def architectures() -> typing.List[str]:
    """Return the names of this package's architectures, MEGA and MEGALODON before the baselines."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    package = __name__.split(".")[0]
    names = [name for name, model in ARCH_MODEL_REGISTRY.items() if model.__module__.split(".")[0] == package]
    return sorted(names, key=lambda name: (not name.startswith("mega"), name))
