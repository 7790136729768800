from pathlib import Path

import pytest

from rlvr_core.api import DataError, PluginError
from rlvr_core.data.uri import cache_folder, local_path
from rlvr_core.plugins import discovery


def test_paths_are_themselves(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    assert local_path("data/x.jsonl") == Path("data/x.jsonl")
    assert local_path("~/x.jsonl") == Path("/home/someone/x.jsonl")
    assert local_path("odd:name.jsonl") == Path("odd:name.jsonl")
    assert local_path("C://x") == Path("C://x")


def test_file_uris():
    assert local_path("file:///data/a%20b.jsonl") == Path("/data/a b.jsonl")
    assert local_path("FILE://localhost/x") == Path("/x")
    with pytest.raises(DataError, match="elsewhere"):
        local_path("file://elsewhere/x")


def test_t44_a_scheme_nobody_opens_names_the_plugin_that_would(monkeypatch):
    monkeypatch.setattr(discovery, "_installed", lambda: iter(()))
    with pytest.raises(PluginError, match=r"(?s)'s3://'.*rlvr-sagemaker"):
        local_path("s3://bucket/key")
    with pytest.raises(PluginError, match="'gopher://'"):
        local_path("gopher://x/y")


def test_the_cache_is_where_the_user_keeps_caches(monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert cache_folder() == Path("/caches/rlvr")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert cache_folder() == Path("/home/someone/.cache/rlvr")
