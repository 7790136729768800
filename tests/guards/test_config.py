"""``guards:`` in a configuration: a list that is laid over the defaults."""

import pytest
import yaml

from rlvr_core.api import ConfigError, RlvrError
from rlvr_core.config.guards import default_guards, in_order
from rlvr_core.config.resolve import resolve_file
from rlvr_core.plugins.host import load_host
from rlvr_core.plugins.registry import Entry, Registry
from rlvr_core.run.events import build_guards

BASE = """
model: {path: m}
data: {sources: [{use: core/jsonl, with: {path: d.jsonl, prompt: q, verifier: core/exact}}]}
train: {steps: 1}
"""

CORE = ("watchdog", "resume", "parity", "tokens", "updates", "sync", "idle")
DEFAULTS = [f"core/{name}" for name in CORE]


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No plugin is there, whatever is installed."""
    monkeypatch.setenv("RLVR_PLUGINS", "")


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "class Mine:\n"
        "    def on_groups(self, event): ...\n"
        "    def on_step(self, event): ...\n"
        "    def __init__(self, config): ...\n"
    )


def resolved(guards="", overrides=()):
    return resolve_file("c.yaml", overrides, load_host(), text=BASE + guards)


def on(config):
    return [config.guards[place].use for place in in_order(config.guards, DEFAULTS)]


def test_the_defaults_are_those_with_a_rank_in_its_order():
    registry = Registry()
    for name, rank in (("b/last", 30), ("a/named", None), ("b/same", 20), ("a/same", 20)):
        registry.add(Entry("guard", name, "m:C", "It looks.", name[0], rank=rank))
    assert default_guards(registry) == ["a/same", "b/same", "b/last"]
    assert default_guards(load_host().registry) == DEFAULTS


def test_without_a_word_all_defaults_are_on_in_their_order():
    assert on(resolved().config) == DEFAULTS
    assert list(build_guards(resolved()).guards) == DEFAULTS


def test_one_is_given_options_one_is_off_and_one_is_added(mine):
    config = resolved(
        "guards: [./mine.py:Mine, {use: idle, with: {max_steps: 3}}, {use: sync, off: true}]"
    ).config
    assert on(config) == [*(name for name in DEFAULTS if name != "core/sync"), "./mine.py:Mine"]
    assert [guard.with_ for guard in config.guards if guard.use == "core/idle"] == [
        {"max_steps": 3}
    ]


def test_all_defaults_are_off_but_those_that_are_named():
    assert on(resolved("guards: [{use: defaults, off: true}]").config) == []
    some = resolved("guards: [{use: defaults, off: true}, core/sync, core/parity]").config
    assert on(some) == ["core/parity", "core/sync"]


@pytest.mark.parametrize(
    "guards",
    [
        "",
        "guards: [{use: core/idle, with: {max_steps: 3}}, {use: core/sync, off: true}]",
        "guards: [{use: defaults, off: true}, core/parity]",
    ],
)
def test_a_resolved_list_is_the_whole_list_and_can_be_run_itself(guards, monkeypatch):
    first = resolved(guards)
    # whatever a later version has on by default
    monkeypatch.setattr(
        "rlvr_core.config.resolve.default_guards", lambda _: [*DEFAULTS, "core/more"]
    )
    again = resolve_file("again.yaml", [], load_host(), text=first.yaml())
    assert on(again.config) == on(first.config)
    assert yaml.safe_load(again.yaml()) == yaml.safe_load(first.yaml())


def test_the_mapping_of_older_versions_is_refused():
    for given in ({"guards": "guards: {preflight: true}"}, {"overrides": ["guards.parity=false"]}):
        with pytest.raises(ConfigError) as caught:
            resolved(**given)
        (complaint,) = caught.value.complaints
        assert "guards" in complaint.what + complaint.where
        assert "list" in complaint.what


@pytest.mark.parametrize(
    ("guards", "words"),
    [
        ("[{use: core/idle, with: {max_step: 3}}]", "did you mean: max_steps"),
        ("[core/partiy]", "parity"),
        ("[core/loss]", "it is guards/loss"),
        ("[loss]", "it is guards/loss"),
        ("[defaults]", "defaults can only be switched off"),
    ],
)
def test_faults_have_lines(guards, words):
    with pytest.raises(RlvrError) as caught:
        resolved(f"guards: {guards}")
    assert words in str(caught.value)
    assert "c.yaml:5" in str(caught.value)


def test_a_guard_of_ones_own_file(mine):
    guards = build_guards(resolved("guards: [./mine.py:Mine]")).guards
    assert list(guards) == [*DEFAULTS, "./mine.py:Mine"]
