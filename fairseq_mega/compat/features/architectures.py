"""List this package's architectures, and require models of expected classes."""

import typing


def require_models(models: typing.Iterable[typing.Any], *kinds: type) -> None:
    """Raise a ValueError unless all models are of these classes."""
    for model in models:
        if not isinstance(model, kinds):
            names = " or ".join(f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}" for kind in kinds)
            raise ValueError(f"the checkpoint has a {type(model).__name__}, but {names} is required")


def architectures() -> typing.List[str]:
    """Return the names of this package's architectures, MEGA and MEGALODON before the baselines."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    package = __name__.split(".")[0]
    names = [name for name, model in ARCH_MODEL_REGISTRY.items() if model.__module__.split(".")[0] == package]
    return sorted(names, key=lambda name: (not name.startswith("mega"), name))
