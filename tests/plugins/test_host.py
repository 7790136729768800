"""A host of real installed plugins: choosing, observing, asking."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from rlvr_core.api import ConfigError, DataReport, MachineError, PluginError, RunData, StepFinished
from rlvr_core.data.uri import model_path
from rlvr_core.plugins.host import load_host

EVENT = StepFinished(step=1, version=0, metrics={})

OBSERVER = """
from rlvr_core.api import hookimpl

seen = []

@hookimpl
def step_finished(event):
    seen.append(event)
    {then}
"""


@pytest.fixture
def installed(site, monkeypatch):
    """Installs plugins and loads a host of them alone."""

    def load(**sources: str):
        for name, source in sources.items():
            site.plugin(name, source)
        monkeypatch.syspath_prepend(site.folder)
        return load_host({"RLVR_PLUGINS": ",".join(sources)})

    return load


def seen(host, name):
    return host.manager.get_plugin(name).seen


def test_core_is_always_there():
    host = load_host({"RLVR_PLUGINS": "", "RLVR_PLUGINS_OFF": "core"})
    assert [r.name for r in host.records if r.status != "off"] == ["core"]
    assert host.entry("loss", "grpo").name == "core/grpo"


def test_allow_list_blocks_before_import(site, monkeypatch, tmp_path):
    site.plugin(
        "allowed", "from rlvr_core.api import hookimpl\n@hookimpl\ndef run_started(): ...\n"
    )
    site.plugin("blocked", f"open({str(tmp_path / 'trace')!r}, 'w')\n")
    monkeypatch.syspath_prepend(site.folder)
    for env in ({"RLVR_PLUGINS": " allowed "}, {"RLVR_PLUGINS_OFF": "blocked"}):
        host = load_host(env)
        assert host.record("allowed").status == "ok"
        assert host.record("blocked").status == "off"
        assert not (tmp_path / "trace").exists()
    with pytest.raises(PluginError, match="RLVR_PLUGINS_OFF='blocked' names it"):
        host.entry("loss", "blocked/x")


def test_switches_take_distribution_names_too(site, monkeypatch):
    site.plugin("named", "from rlvr_core.api import hookimpl\n@hookimpl\ndef run_started(): ...\n")
    monkeypatch.syspath_prepend(site.folder)
    assert load_host({"RLVR_PLUGINS": "Acme_Named"}).record("named").status == "ok"
    assert load_host({"RLVR_PLUGINS_OFF": "acme-named"}).record("named").status == "off"


def test_broken_observer_stops_nobody_and_is_warned_about_once(installed, caplog):
    host = installed(
        a_fails=OBSERVER.format(then="raise ValueError('no')"),
        b_exits=OBSERVER.format(then="raise SystemExit(1)"),
        c_works=OBSERVER.format(then="pass"),
    )
    with caplog.at_level(logging.WARNING):
        host.observe("step_finished", EVENT)
        host.observe("step_finished", EVENT)
    assert [len(seen(host, name)) for name in ("a_fails", "b_exits", "c_works")] == [2, 2, 2]
    assert seen(host, "c_works") == [EVENT, EVENT]
    assert len(caplog.records) == 2
    assert "plugin a_fails failed in step_finished: ValueError: no" in caplog.text
    assert "plugin.py:9)" in caplog.text


def test_interrupt_in_an_observer_gets_through(installed):
    host = installed(stops=OBSERVER.format(then="raise KeyboardInterrupt"))
    with pytest.raises(KeyboardInterrupt):
        host.observe("step_finished", EVENT)


def test_hook_may_take_fewer_arguments(installed):
    host = installed(
        fewer="from rlvr_core.api import hookimpl\nfrom pathlib import Path\n"
        "@hookimpl\ndef open_uri(uri):\n    return Path(uri[4:]) if uri[:4] == 'x://' else None\n"
    )
    assert host.record("fewer").hooks == ("open_uri",)
    assert host.ask_uri("x://a/b", Path("cache")) == Path("a/b")


ANSWER = (
    "from rlvr_core.api import hookimpl, MachineError\nfrom pathlib import Path\n"
    "@hookimpl\ndef open_uri(uri, cache):\n    {then}\n"
    "@hookimpl\ndef locate_run(env):\n    {then}\n"
)


def test_first_answer_counts(installed):
    host = installed(
        ask_a=ANSWER.format(then="return None"),
        ask_b=ANSWER.format(then="return Path('b')"),
        ask_c=ANSWER.format(then="return Path('c')"),
    )
    assert host.ask_uri("s3://x", Path("cache")) == Path("b")
    assert host.locate_run({}) == Path("b")


def test_uri_of_nobody(installed):
    host = installed()
    with pytest.raises(PluginError) as caught:
        host.ask_uri("s3://bucket/key", Path("cache"))
    assert "rlvr-sagemaker" in str(caught.value)  # to install it, or to turn it on
    with pytest.raises(PluginError) as caught:
        host.ask_uri("gopher://x", Path("cache"))
    assert "pip install" not in str(caught.value)
    assert host.locate_run({}) is None


def test_fault_while_answering_names_the_plugin(installed):
    host = installed(ask_fails=ANSWER.format(then="raise OSError('no route')"))
    with pytest.raises(PluginError, match="ask_fails failed in open_uri: OSError: no route") as e:
        host.ask_uri("s3://x", Path("cache"))
    assert e.value.complaints[0].where.endswith("acme_ask_fails/plugin.py:5")
    host = installed(ask_odd=ANSWER.format(then="return 'text'"))
    with pytest.raises(PluginError, match="a str, not a Path"):
        host.ask_uri("s3://x", Path("cache"))
    host = installed(ask_tells=ANSWER.format(then="raise MachineError('no credentials')"))
    with pytest.raises(MachineError, match="no credentials"):
        host.ask_uri("s3://x", Path("cache"))


CHECK = (
    "from rlvr_core.api import ConfigError, DataReport, hookimpl\n"
    "@hookimpl\ndef check_data(data):\n    {then}\n"
)
DATA = RunData(model="m", trained={"a": ()}, held_out={}, max_contaminated=0.0, where="c.yaml:1")


def test_every_check_of_the_data_is_asked(installed):
    host = installed(
        check_a=CHECK.format(then="return DataReport('a', {'n': len(data.trained)}, ('one',))"),
        check_b=CHECK.format(then="return None"),
        check_c=CHECK.format(then="return DataReport('c', {})"),
    )
    assert host.check_data(DATA) == [DataReport("a", {"n": 1}, ("one",)), DataReport("c", {})]


def test_a_check_of_the_data_may_refuse_and_a_broken_one_is_its_plugins_fault(installed):
    host = installed(check_no=CHECK.format(then="raise ConfigError('no', where=data.where)"))
    with pytest.raises(ConfigError, match="no") as caught:
        host.check_data(DATA)
    assert caught.value.complaints[0].where == "c.yaml:1"
    host = installed(check_bad=CHECK.format(then="return data.model"))
    with pytest.raises(PluginError, match="check_bad answered check_data with a str"):
        host.check_data(DATA)


def test_a_model_is_located_by_whoever_knows_it(installed):
    host = installed(
        model="from rlvr_core.api import hookimpl\nfrom pathlib import Path\n"
        "@hookimpl\ndef locate_model(reference):\n"
        "    return Path('/found') if reference == 'mine:x' else None\n"
    )
    assert model_path("mine:x", host) == "/found"
    assert model_path("org/name", host) == "org/name"
    assert model_path("file:///a%20b", host) == "/a b"
    with pytest.raises(PluginError, match="gopher"):
        model_path("gopher://x", host)


def test_object_as_plugin(site, monkeypatch):
    site.module(
        "acme_object.py",
        "from rlvr_core.api import hookimpl\nclass P:\n    @hookimpl\n"
        "    def register_losses(self, registrar):\n"
        "        registrar.add('x', 'm:X', summary='One.')\nplugin = P()\n",
    )
    site.install("acme-object", "object = acme_object:plugin")
    monkeypatch.syspath_prepend(site.folder)
    host = load_host({"RLVR_PLUGINS": "object"})
    assert host.record("object").status == "ok"
    assert host.entry("loss", "object/x").plugin == "object"
