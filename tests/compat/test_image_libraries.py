"""torchvision beside a torch that its compiled operators were not built for."""

import importlib
import sys

import pytest
import torch

from fairseq_mega.compat.versions.image_libraries import import_torchvision

# As torchvision's own description of its operators, which fails where the library with the operators does not load.
DESCRIBED = """
import torch
for name in ("torchvision::made_up_for_a_test", "torchvision::another_made_up"):
    torch.library.register_fake(name)(lambda boxes: boxes)
"""


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    yield tmp_path / "torchvision.py"
    sys.modules.pop("torchvision", None)


def test_missing_operators_are_declared(stand_in):
    stand_in.write_text(DESCRIBED)
    with pytest.raises(RuntimeError, match="operator torchvision::made_up_for_a_test does not exist"):
        importlib.import_module("torchvision")
    import_torchvision()
    assert "torchvision" in sys.modules
    with pytest.raises((RuntimeError, NotImplementedError)):
        torch.ops.torchvision.another_made_up(torch.zeros(1))
