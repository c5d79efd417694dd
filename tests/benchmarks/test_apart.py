"""Measurements in processes of their own, which are copies of one that has imported its benchmark."""

from typing import Any, Dict

import pytest

from fairseq_mega.lab.benchmarks import apart, command


def measured(part: str) -> Dict[str, Any]:
    return apart.run_apart(part, command.parse(["layer", "--smoke"]), "a part")


def test_each_measurement_is_a_process_of_its_own(capfd: Any) -> None:
    first, second = (measured(f"mega:{length}") for length in (16, 32))
    assert first["seconds"] > 0 and second["kept_mib"] > first["kept_mib"] > 0
    assert capfd.readouterr() == ("", "")


def test_a_measurement_that_fails_ends_the_benchmark_with_its_messages(capfd: Any) -> None:
    with pytest.raises(SystemExit, match=r"(?s)measuring a part failed \(exit status 1\):.*ValueError.*'none'"):
        measured("mega:none")
    assert capfd.readouterr() == ("", "")
    assert measured("mega:16")["seconds"] > 0
