import threading

import pytest

pytest.importorskip("starlette")
pytest.importorskip("plotly")

from starlette.testclient import TestClient

from rlvr_view.viewer.app import application
from rlvr_view.viewer.index import Cache
from rlvr_view.viewer.indexing import building, update
from rlvr_view.viewer.runs import Runs

ADDRESS = "http://127.0.0.1:6806"


class Viewed:
    """A viewer of the runs under a folder, asked as a browser asks it."""

    def __init__(self, root, cache):
        self.cache = Cache(cache)
        self.client = TestClient(
            application(Runs(root), self.cache), base_url=ADDRESS, raise_server_exceptions=False
        )

    def read(self, folder):
        """Read all rollouts of a run; the address of its pages."""
        file, alone = self.cache.file(folder.path), False
        while not alone:
            with building(file) as alone:
                if alone:
                    update(file, folder.traces / "rollouts.jsonl", threading.Event())
        return f"/runs/{folder.name}"

    def get(self, address, status=200, **headers):
        answer = self.client.get(address, headers=headers)
        assert answer.status_code == status, answer.text
        return answer.text


@pytest.fixture
def runs(tmp_path):
    return tmp_path / "runs"


@pytest.fixture
def viewed(runs, tmp_path):
    runs.mkdir(exist_ok=True)
    made = Viewed(runs, tmp_path / "cache")
    with made.client:
        yield made
