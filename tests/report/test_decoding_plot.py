"""The plot of decoding."""

import pytest

from fairseq_mega.lab.report.decoding import plot_speeds, speeds

SCORES = {
    "mega position=1000 seconds": 0.01,
    "mega position=100 seconds": 0.005,
    "mega position=100 bytes": 7.0,
    "mega, chunk 16 position=100 seconds": 0.002,
}


def test_speeds_are_those_of_the_file():
    assert speeds(SCORES) == {"mega": [(100, 200.0), (1000, 100.0)], "mega, chunk 16": [(100, 500.0)]}
    with pytest.raises(ValueError, match="no measurement of decoding"):
        speeds({"mega position=100 bytes": 7.0})


def test_the_plot_is_written(tmp_path):
    pytest.importorskip("matplotlib")
    plot_speeds(SCORES, tmp_path / "decoding.png")
    assert (tmp_path / "decoding.png").read_bytes().startswith(b"\x89PNG")
