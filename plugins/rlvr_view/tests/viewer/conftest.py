import pytest

pytest.importorskip("starlette")
pytest.importorskip("plotly")

from plugins.rlvr_view.tests.viewer.viewed import Viewed


@pytest.fixture
def viewed(runs, tmp_path):
    runs.mkdir(exist_ok=True)
    made = Viewed(runs, tmp_path / "cache")
    with made.client:
        yield made
