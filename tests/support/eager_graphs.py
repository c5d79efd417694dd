"""A stand-in for CUDA graphs on a CPU: the captured function runs on the same tensors each time."""

from typing import Any, Callable, List

import pytest

from fairseq_mega.models import decoding_graph


def use(monkeypatch: pytest.MonkeyPatch) -> List[Callable[[], Any]]:
    """Decode by graphs on a CPU; return the list of the functions that will be captured."""
    captured: List[Callable[[], Any]] = []

    def capture(run: Callable[[], Any], device: Any) -> Callable[[], Any]:
        run()  # as a warm-up does, which leaves traces in the tensors
        captured.append(run)
        return run

    monkeypatch.setattr(decoding_graph, "DEVICES", ("cpu",))
    monkeypatch.setattr(decoding_graph, "capture", capture)
    return captured
