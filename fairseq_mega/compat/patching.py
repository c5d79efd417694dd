"""Replace a function of fairseq everywhere it is held."""

import sys
import typing


def replace_in_fairseq(name: str, original: typing.Callable, replacement: typing.Callable) -> None:
    """Put `replacement` wherever a loaded fairseq module holds `original`, imported by name or not."""
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] in ("fairseq", "fairseq_cli") and vars(module).get(name) is original:
            setattr(module, name, replacement)
