"""Windows is refused."""

from __future__ import annotations

import sys

import pytest

import rlvr_core
from rlvr_core.cli.main import main


@pytest.mark.parametrize("words", [["run", "config.yaml"], ["plugins", "list"], ["--help"]])
def test_windows_is_refused_with_a_sentence(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "win32")
    assert main(words) == 4
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "error: rlvr runs on Linux and macOS, not on Windows",
        "  use it in WSL 2, which is Linux",
    ]


@pytest.mark.parametrize("name", ["train", "evaluate", "RunView"])
def test_windows_is_refused_from_python_too(name, monkeypatch):
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.delitem(vars(rlvr_core), name, raising=False)
    with pytest.raises(ImportError, match="rlvr runs on Linux and macOS, not on Windows"):
        getattr(rlvr_core, name)
