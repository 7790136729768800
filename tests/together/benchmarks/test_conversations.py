"""A thousand scripted conversations, a hundredth of them with a tool that hangs."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.mark.slow
def test_of_a_thousand_conversations_none_is_lost_and_nothing_left_running(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    play = importlib.import_module("conversations").play
    found = play(1000, at_a_time=32, hung=0.01, seconds=0.0, timeout=15.0, workers=12)
    assert found["answers"] == 1000
    assert found["ended"] == {"done": 990, "timeout": 10}
    assert found["left_running"] == 0
    assert found["per_second"] > 0
