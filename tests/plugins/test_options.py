"""Options of plugins of hooks alone: ``plugins: {NAME: {...}}``."""

from __future__ import annotations

import json
import sys

import pytest
import yaml

from rlvr_core.api import ConfigError, PluginError
from rlvr_core.config.resolve import plugin_options
from rlvr_core.config.tree import Mark, made
from rlvr_core.plugins.host import load_host
from rlvr_core.plugins.missing import Missing
from rlvr_core.plugins.registry import Registry

PLUGIN = """
import json
from rlvr_core.api import ComponentConfig, hookimpl


class Config(ComponentConfig):
    path: str
    every: int = 5


@hookimpl
def configure(options):
    if options.every == 13:
        raise OSError("no such luck")
    with open(options.path, "w") as file:
        json.dump({"every": options.every}, file)
"""

CONFIG = {
    "model": {"path": "none"},
    "data": {"sources": ["none"]},
    "train": {"steps": 1},
}


@pytest.fixture
def noted(site):
    site.plugin("notes", PLUGIN)
    return site


@pytest.fixture
def configured(noted, monkeypatch):
    """Configures plugins as a run does."""
    monkeypatch.syspath_prepend(noted.folder)

    def configure(plugins):
        host = load_host()
        root = made({"plugins": plugins}, Mark("config.yaml", 7))
        host.configure({n: plugin_options(host, n, one, root) for n, one in plugins.items()})

    yield configure
    for name in [name for name in sys.modules if name.startswith("acme_notes")]:
        del sys.modules[name]


def test_a_plugin_gets_its_options_with_defaults(configured, tmp_path):
    path = tmp_path / "notes.json"
    configured({"notes": {"path": str(path)}})
    assert json.loads(path.read_text()) == {"every": 5}


@pytest.mark.parametrize(
    ("plugins", "error", "says"),
    [
        ({"notes": {"path": "x", "evry": 3}}, ConfigError, ["'evry'", "did you mean: every?"]),
        ({"notes": {}}, ConfigError, ["path"]),
        ({"notse": {}}, ConfigError, ["plugin is called 'notse'", "did you mean: notes?"]),
        ({"core": {}}, ConfigError, ["plugin 'core' takes no options"]),
        (
            {"notes": {"path": "x", "every": 13}},
            PluginError,
            ["plugin notes failed in configure: OSError: no such luck", ":14"],
        ),
    ],
)
def test_what_is_wrong_is_told_with_the_plugins_name(configured, plugins, error, says):
    with pytest.raises(error) as caught:
        configured(plugins)
    assert all(text in str(caught.value) for text in says)


def test_they_are_checked_with_the_config_and_recorded(noted, tmp_path):
    config = tmp_path / "config.yaml"
    row = {"question": "?", "answer": "1"}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row) + "\n")
    source = {
        "use": "core/jsonl",
        "with": {"path": str(tmp_path / "rows.jsonl"), "prompt": "question", "verifier": "exact"},
    }
    content = CONFIG | {"data": {"sources": [source]}, "plugins": {"notes": {"path": "a.json"}}}
    config.write_text(yaml.safe_dump(content))
    done = noted.run("config", "resolve", str(config))
    assert done.code == 0, done
    assert yaml.safe_load(done.out)["plugins"] == {"notes": {"path": "a.json", "every": 5}}
    content["plugins"]["notes"]["every"] = "often"
    config.write_text(yaml.safe_dump(content))
    done = noted.run("config", "check", str(config))
    assert done.code == 2, done
    assert "plugins.notes.every" in done.err + done.out


def test_a_plugin_that_is_not_installed_is_named_with_its_package():
    error = Missing(Registry(), []).options("sagemaker", "config.yaml:7")
    assert isinstance(error, PluginError)
    assert "pip install rlvr-sagemaker" in str(error)
    assert "config.yaml:7" in str(error)
