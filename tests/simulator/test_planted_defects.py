"""Planted defects are noticed, and the shares in examples/kernels/README.md are those that were counted."""

import json
import re

import pytest

from tests.simulator import build, planted_defects

EXAMPLE = build.REPOSITORY / "examples" / "kernels"
NAMES = {
    "attention": "attention",
    "ema": "EMA scan",
    "fft_conv": "FFT convolution",
    "gate": "update gate",
    "timestep_norm": "timestep norm",
}


def counts():
    return json.loads((EXAMPLE / "results" / "planted_defects.json").read_text())


def test_the_documented_shares():
    text = (EXAMPLE / "README.md").read_text().split("**Planted defects.**")[1]
    rows = re.findall(r"^\| ([^|]+) \| (\d+) of (\d+) \| (\d+) \|", text, re.M)
    assert {name: [int(number) for number in numbers] for name, *numbers in rows} == {
        NAMES[operator]: [count[name] for name in ("noticed", "tried", "planted")]
        for operator, count in counts().items()
    }


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
