import pytest

from tests.support.eval_fixtures import lab, model_dir, other_model, toy_site
from tests.support.openai_server import Server, answer

__all__ = ["lab", "model_dir", "other_model", "toy_site"]


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
