"""The guards of rlvr-guards among those of the core: which are on, and in which order."""

import pytest

from rlvr_core.api import ConfigError
from rlvr_core.config.guards import default_guards, in_order
from rlvr_core.config.resolve import resolve_file
from rlvr_core.plugins.host import load_host
from rlvr_core.run.events import build_guards

DEFAULTS = [
    *("core/watchdog", "guards/preflight", "core/resume", "guards/completions", "core/parity"),
    *("core/tokens", "guards/advantages", "guards/kl", "guards/loss", "core/updates"),
    *("guards/optimizer", "core/sync", "guards/seeds", "guards/canaries", "guards/collapse"),
    *("core/idle", "guards/gpu"),
]
BASE = """
model: {path: m}
data: {sources: [{use: core/jsonl, with: {path: d.jsonl, prompt: q, verifier: core/exact}}]}
train: {steps: 1}
"""


@pytest.fixture(autouse=True)
def both(monkeypatch):
    monkeypatch.setenv("RLVR_PLUGINS", "guards")


def resolved(guards=""):
    return resolve_file("c.yaml", [], load_host(), text=BASE + guards)


def on(config):
    places = in_order(config.guards, default_guards(load_host().registry))
    return [config.guards[place].use for place in places]


def test_a_fault_is_named_first_by_the_guard_that_explains_it():
    assert on(resolved().config) == DEFAULTS
    assert list(build_guards(resolved()).guards) == DEFAULTS


def test_short_names_switch_off_and_on():
    config = resolved("guards: [shadow, {use: seeds, off: true}, {use: loss, off: true}]").config
    left = [name for name in DEFAULTS if name not in ("guards/seeds", "guards/loss")]
    assert on(config) == [*left, "guards/shadow"]
    assert on(resolved("guards: [{use: defaults, off: true}, kl]").config) == ["guards/kl"]


def test_the_name_that_a_guard_had_in_the_core_is_answered_with_its_new_one():
    with pytest.raises(ConfigError, match=r"(?s)core/loss.*did you mean: guards/loss"):
        resolved("guards: [{use: core/loss, off: true}]")
