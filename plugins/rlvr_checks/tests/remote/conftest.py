import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fault_server import Server, answer  # type: ignore


@pytest.fixture
def server():
    found = Server()
    yield found
    found.close()


@pytest.fixture
def good():
    return answer


@pytest.fixture
def short_waits(monkeypatch):
    """Back off as always, a fiftieth as long."""
    monkeypatch.setattr("rlvr_checks.openai.client.FIRST_WAIT", 0.01)
    monkeypatch.setattr("rlvr_checks.openai.client.LONGEST_WAIT", 0.6)
