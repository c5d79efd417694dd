"""Replace a function of fairseq everywhere it is held, or what one of its modules knows as another module."""

import sys
import types
import typing


class ModuleWith(types.ModuleType):
    """A module with some of its names replaced, for those who are to see it so; the module itself stays as it is."""

    def __init__(self, original: types.ModuleType, **replaced: typing.Any) -> None:
        super().__init__(original.__name__)
        self.__dict__.update(replaced, _original=original)

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._original, name)


def replace_in_fairseq(name: str, original: typing.Callable, replacement: typing.Callable) -> None:
    """Put `replacement` wherever a loaded fairseq module holds `original`, imported by name or not."""
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] in ("fairseq", "fairseq_cli") and vars(module).get(name) is original:
            setattr(module, name, replacement)
