"""Fixtures for tests of plugins, in addition to ``lab`` and ``installed_plugin``."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlvr_core.api import Engine, config_class
from rlvr_core.plugins.host import Host, load_host
from rlvr_core.testing.contexts import tiny_context
from rlvr_core.testing.offline import without_hub

_HERE = ("127.0.0.1", "::1", "localhost")


@pytest.fixture
def rlvr_host() -> Host:
    """All installed plugins, freshly loaded: ``rlvr_host.entry("verifier", "hello/greeting")``."""
    return load_host()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model with random weights and a byte tokenizer: runs of it take seconds."""
    from rlvr_core.testing.random_model import save_random_model  # imports torch

    return save_random_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def scripted_engine(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    """Makes engines with scripted answers, started with a tiny model.

    ``scripted_engine({"2 + 2": ["4", "5"]})``: a request whose id or prompt contains a key is
    answered by its texts in turn; an empty key answers all others.
    """
    engines: list[Any] = []

    def make(answers: Mapping[str, Sequence[str]], **options: Any) -> Engine:
        component = load_host().entry("engine", "core/scripted").load()
        config = {"answers": dict(answers), **options}
        engine: Engine = component(config_class(component).model_validate(config))
        engine.start(tiny_context(tmp_path))
        engines.append(engine)
        return engine

    yield make
    for engine in engines:
        engine.close()


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A connection to another machine fails the test, with the address; this machine is allowed."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and address[0] not in _HERE:
            pytest.fail(f"a connection to {address[0]}:{address[1]} is opened", pytrace=True)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with without_hub():
        yield


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MiB, which root may mount."""
    path = tmp_path / "small"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        pytest.skip("mounting a small tmpfs is not allowed here")
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)
