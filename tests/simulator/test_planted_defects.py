"""Planted defects are noticed, and every survivor is listed."""

import json

import pytest

from tests.simulator import build, planted_defects

EXAMPLE = build.REPOSITORY / "examples" / "kernels"


def counts():
    return json.loads((EXAMPLE / "results" / "planted_defects.json").read_text())


def test_every_survivor_is_listed():
    for operator, count in counts().items():
        assert operator in planted_defects.OPERATORS
        assert count["tried"] - count["noticed"] == len(count["survivors"]), operator
        assert count["tried"] + count["not compiled"] <= count["planted"], operator


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_defect_is_noticed():
    if build.cuda_home() is None:
        pytest.skip("the simulator needs the CUDA toolkit's headers: set CUDA_HOME")
    operator = planted_defects.OPERATORS["gate"]
    text = (build.SOURCES / "gate" / "cuda.cu").read_text()
    defects = list(planted_defects.defects_in("gate/cuda.cu", text))
    wrong = next(defect for defect in defects if defect.name == "modulo dropped")
    outside = next(defect for defect in defects if defect.name == ">= becomes >")
    with planted_defects.Checks(operator, 1) as checks:
        assert checks.try_defect(None) == ("survived", "")
        assert checks.try_defect(wrong)[0] == "caught"
        assert checks.try_defect(wrong._replace(text=text.replace("sigmoid", "undefined", 1)))[0] == "not compiled"
        if build.sanitizer_library() is not None:
            assert "AddressSanitizer" in checks.try_defect(outside)[1]
