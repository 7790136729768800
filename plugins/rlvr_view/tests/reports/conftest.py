import pytest


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"
