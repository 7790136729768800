"""Names that cannot be found: which hints, in which order, with which exit code."""

from __future__ import annotations

import pytest

from rlvr_core.api import ConfigError, PluginError
from rlvr_core.plugins.discovery import NOWHERE, Place
from rlvr_core.plugins.hookcheck import PluginProblem
from rlvr_core.plugins.host import Host
from rlvr_core.plugins.loader import PluginRecord, new_manager
from rlvr_core.plugins.registry import Entry, PluginRegistrar, Registry, parse_kind, plural


def record(name, status="ok", problems=()):
    module = f"acme_{name}.plugin"
    return PluginRecord(name, f"acme-{name}", "0.2.0", module, "", status, tuple(problems))


PROBLEM = PluginProblem("ModuleNotFoundError: No module named 'x'", Place("p.py", 7), ("fix x",))


@pytest.fixture
def host():
    registry = Registry()
    for kind, name in [
        ("verifier", "math/boxed"),
        ("verifier", "math/gsm8k"),
        ("verifier", "other/boxed"),
        ("dataset", "math/gsm8k"),
        ("dataset", "math/arithmetic"),
        ("loss", "core/grpo"),
        ("loss", "core/dr_grpo"),
    ]:
        plugin, _, leaf = name.partition("/")
        registry.add(Entry(kind, name, f"acme.{leaf}:X", "Summary.", plugin))
    records = (
        record("core"),
        record("math"),
        record("other", "warned", [PROBLEM]),
        record("broken", "failed", [PROBLEM]),
        record(
            "quiet", "off", [PluginProblem("turned off: RLVR_PLUGINS_OFF='quiet'", NOWHERE, ())]
        ),
    )
    return Host(registry, records, new_manager())


def message(host, kind, name, error):
    with pytest.raises(error) as caught:
        host.entry(kind, name, where="run.yaml:3")
    assert type(caught.value) is error
    assert caught.value.complaints[0].where == "run.yaml:3"
    return caught.value.complaints[0]


def test_found_by_full_and_short_name(host):
    assert host.entry("verifier", "math/boxed").name == "math/boxed"
    assert host.entry("verifier", "gsm8k").name == "math/gsm8k"
    assert host.entry("dataset", "gsm8k").kind == "dataset"


def test_ambiguous_short_name_lists_owners(host):
    complaint = message(host, "verifier", "boxed", ConfigError)
    assert complaint.what == "verifier 'boxed' is ambiguous"
    assert complaint.remedy == ("write one of: math/boxed, other/boxed",)


def test_failed_plugin_comes_first(host):
    complaint = message(host, "verifier", "broken/boxed", PluginError)
    assert complaint.what == "verifier 'broken/boxed' is unavailable"
    assert complaint.remedy == (
        "plugin acme-broken 0.2.0 is installed but failed to load: "
        "ModuleNotFoundError: No module named 'x' (p.py:7)",
        "fix x",
        "details: rlvr plugins show broken",
    )


def test_plugin_that_is_off_says_so(host):
    complaint = message(host, "loss", "quiet/x", PluginError)
    assert complaint.remedy == ("plugin acme-quiet 0.2.0 is turned off: RLVR_PLUGINS_OFF='quiet'",)


@pytest.mark.parametrize(
    ("kind", "name", "meant"),
    [
        ("verifier", "math/boxd", "math/boxed"),
        ("verifier", "math/gsm8", "math/gsm8k"),
        ("verifier", "gsm8k_", "math/gsm8k"),
        ("verifier", "maths/gsm8k", "math/gsm8k"),
        ("verifier", "Math/GSM8K", "math/gsm8k"),
        ("loss", "gpro", "core/grpo"),
        ("loss", "dr-grpo", "core/dr_grpo"),
    ],
)
def test_misspelling(host, kind, name, meant):
    complaint = message(host, kind, name, ConfigError)
    hints = [line for line in complaint.remedy if line.startswith("did you mean: ")]
    assert meant in hints[0]
    assert complaint.remedy[-1] == f"list them: rlvr list {plural(kind)}"


def test_name_of_another_kind(host):
    complaint = message(host, "loss", "math/arithmetic", ConfigError)
    assert complaint.remedy[0] == "'math/arithmetic' is a dataset"


def test_strangers_plugin_is_never_guessed(host):
    complaint = message(host, "verifier", "zebra/strict", PluginError)
    assert complaint.remedy[0] == "no installed plugin is called 'zebra'"
    assert not any("pip install" in line for line in complaint.remedy)


def test_misspelt_first_party_plugin_that_is_not_installed(host):
    complaint = message(host, "verifier", "ifevl/strict", ConfigError)
    assert "'ifeval' would come with rlvr-ifeval, which is not installed" in complaint.remedy[0]


def test_short_name_may_belong_to_a_failed_plugin(host):
    complaint = message(host, "verifier", "zzzzzz", PluginError)
    assert complaint.remedy[0] == (
        "plugin acme-broken 0.2.0 failed to load and may have it: rlvr plugins show broken"
    )


@pytest.mark.parametrize("name", ["", "/", "/boxed", "math/", "a/b/c", "\udc80", "x" * 10_000])
def test_odd_names_are_errors_not_crashes(host, name):
    with pytest.raises((ConfigError, PluginError)):
        host.entry("verifier", name)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("verifier", "verifier"),
        ("verifiers", "verifier"),
        ("losses", "loss"),
        ("eval-tasks", "eval_task"),
        ("Eval_Task", "eval_task"),
        ("los", None),
        ("", None),
    ],
)
def test_kinds(text, kind):
    assert parse_kind(text) == kind


@pytest.mark.parametrize(
    ("name", "target", "summary"),
    [
        ("Upper", "m:X", "Fine."),
        ("a/b", "m:X", "Fine."),
        ("", "m:X", "Fine."),
        ("new\n", "m:X", "Fine."),
        ("ok", "no_attribute", "Fine."),
        ("ok", "m:X:Y", "Fine."),
        ("ok", ".m:X", "Fine."),
        ("ok", "m..n:X", "Fine."),
        ("ok", "m:X", " "),
        ("ok", "m:X", "two\nlines"),
    ],
)
def test_registrar_refuses_malformed(name, target, summary):
    registry = Registry()
    with pytest.raises(PluginError):
        PluginRegistrar(registry, "verifier", "acme").add(name, target, summary=summary)
    assert not registry.entries


def test_component_that_cannot_be_imported_names_place_and_plugin(tmp_path, monkeypatch):
    (tmp_path / "acme_lazy.py").write_text("x = 1\nimport acme_never_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry()
    registrar = PluginRegistrar(registry, "verifier", "acme")
    registrar.add("lazy", "acme_lazy:X", summary="Breaks when used.")
    registrar.add("gone", "acme_never_there:X", summary="Is not there.")
    with pytest.raises(PluginError) as caught:
        registry.entries["verifier", "acme/lazy"].load()
    assert caught.value.complaints[0].where == f"{tmp_path / 'acme_lazy.py'}:2"
    with pytest.raises(PluginError) as caught:
        registry.entries["verifier", "acme/gone"].load()
    assert caught.value.complaints[0].where.startswith(__file__)
    assert "rlvr plugins show acme" in caught.value.complaints[0].remedy[0]
