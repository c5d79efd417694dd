"""Check the options of a script with any Python 3, before there is an environment: check_options.py MODULE WORD...

MODULE.options reads the words. It ends with its help or an error, or prints the options that the script reads.
"""

import importlib
import sys
import types
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "fairseq_mega"

if __name__ == "__main__":
    package = types.ModuleType(PACKAGE.name)  # without the code of __init__, which requires torch
    package.__path__ = [str(PACKAGE)]
    sys.modules[PACKAGE.name] = package
    sys.dont_write_bytecode = True
    importlib.import_module(f"{sys.argv[1]}.options").main(sys.argv[2:])
