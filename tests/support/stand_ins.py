"""Stand-ins for commands of the system, for the tests of scripts."""

import os
from pathlib import Path
from typing import Dict


def commands_in(folder: Path, **scripts: str) -> Dict[str, str]:
    """An environment in which these shell scripts hide the commands of the same name (``apt_get``: apt-get)."""
    folder.mkdir()
    for name, body in scripts.items():
        path = folder / name.replace("_", "-")
        path.write_text(f"#!/bin/sh\nset -eu\n{body}\n")
        path.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
