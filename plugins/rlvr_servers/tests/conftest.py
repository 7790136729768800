"""Engines on stand-ins for servers, and the laboratory of whole runs."""

from dataclasses import replace

import psutil
import pytest

from rlvr_core.testing.run_lab import lab, make_lab, model_dir, toy_site
from rlvr_servers import fleet as vllm_fleet
from rlvr_servers import process as vllm_serve
from rlvr_servers.engine import VllmServerEngine
from tests.support.fake_servers import context

__all__ = ["lab", "make_lab", "model_dir", "toy_site"]


@pytest.fixture
def make(monkeypatch):
    """Engines whose servers are stand-ins; none outlives the test."""
    monkeypatch.setattr(vllm_serve, "SERVER_MODULE", "tests.support.fake_vllm")
    monkeypatch.setattr(vllm_fleet, "CHECK_INTERVAL", 0.3)
    monkeypatch.setattr(vllm_fleet, "FIRST_RESTART_DELAY", 0.1)
    monkeypatch.delenv("RLVR_ENGINE_GPUS", raising=False)
    engines = []

    def make(breaks="", *, slow=0.0, once=None, transport=None, **options):
        monkeypatch.setenv("FAKE_BREAKS", breaks)
        monkeypatch.setenv("FAKE_SECONDS_PER_TOKEN", str(slow))
        monkeypatch.delenv("FAKE_ONCE", raising=False)
        if once is not None:
            once.touch()
            monkeypatch.setenv("FAKE_ONCE", str(once))
        engine = VllmServerEngine(VllmServerEngine.Config(**{"deadline": 60, **options}))
        engines.append(engine)
        engine.start(replace(context(), transport=transport))
        return engine

    yield make
    for engine in engines:
        engine.close()
    left = [one for one in psutil.Process().children(recursive=True) if "fake_vllm" in str(one)]
    assert not left
