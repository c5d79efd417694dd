"""Make torch.compile link in an environment whose path has a space: torch does not quote its libraries' folder."""

import shlex
import types
import typing

from fairseq_mega.compat.patching import wrap
from fairseq_mega.compat.startup import when_imported


def quote_library_folders() -> None:
    """Quote the folders of torch's libraries for Inductor's linker, when Inductor is imported."""
    when_imported("torch._inductor.cpp_builder", _quote)


def _quote(cpp_builder: types.ModuleType) -> None:
    wrap(cpp_builder.CppBuilder, "get_command_line", _command_line)


def _command_line(original: typing.Callable[[typing.Any], str], self: typing.Any) -> str:
    for folder in self._build_option.get_libraries_dirs():
        unquoted = f"-L{folder} "
        self._libraries_dirs_args = self._libraries_dirs_args.replace(unquoted, f"-L{shlex.quote(folder)} ")
    return original(self)
