"""Check that models and tasks of a configuration are registered and of the expected kind; list architectures."""

import contextlib
import contextvars
import typing

from fairseq_mega.compat.patching import wrap

_expected: "contextvars.ContextVar[typing.Tuple[type, ...]]" = contextvars.ContextVar("expected", default=())


class UnexpectedName(ValueError):
    """Error for a configuration whose model or task is unknown or of an unexpected kind."""


@contextlib.contextmanager
def expect_models_of(*kinds: type) -> typing.Iterator[None]:
    """Restrict fairseq to models of these classes within the block; other models raise UnexpectedName."""
    token = _expected.set(kinds)
    try:
        yield
    finally:
        _expected.reset(token)


def look_names_up() -> None:
    """Check the model and the task of a configuration before anything is built."""
    from fairseq import models, tasks

    wrap(models, "build_model", _build_model)
    wrap(tasks, "setup_task", _setup_task)


def _build_model(original: typing.Callable, cfg: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY

    name = getattr(cfg, "_name", None) or getattr(cfg, "arch", None)
    expected = _expected.get()
    if name is not None:
        cls = ARCH_MODEL_REGISTRY.get(name) or (MODEL_REGISTRY[name] if name in MODEL_DATACLASS_REGISTRY else None)
        if cls is None:
            raise UnexpectedName(f"--arch {name} is unknown: give the --user-dir of the plugin that defines it")
        if expected and not issubclass(cls, expected):
            wanted = " or ".join(f"{'an' if kind.__name__[0] in 'AEIOU' else 'a'} {kind.__name__}" for kind in expected)
            raise UnexpectedName(f"--arch {name} is a {cls.__name__}, but {wanted} is required")
    token = _expected.set(())  # a model may build other models as its parts
    try:
        return original(cfg, *args, **kwargs)
    finally:
        _expected.reset(token)


def _setup_task(original: typing.Callable, cfg: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
    from fairseq.tasks import TASK_REGISTRY

    name = getattr(cfg, "task", None)
    name = name if isinstance(name, str) else getattr(cfg, "_name", None)
    if name is not None and name not in TASK_REGISTRY:
        raise UnexpectedName(f"--task {name} is unknown: give the --user-dir of the plugin that defines it")
    return original(cfg, *args, **kwargs)


def architectures() -> typing.List[str]:
    """Return the names of this package's architectures, MEGA and MEGALODON before the baselines."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    package = __name__.split(".")[0]
    names = [name for name, model in ARCH_MODEL_REGISTRY.items() if model.__module__.split(".")[0] == package]
    return sorted(names, key=lambda name: (not name.startswith("mega"), name))
