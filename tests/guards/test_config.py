"""``guards:`` in a configuration: a list that is laid over the defaults."""

import pytest
import yaml

from rlvr_core.api import ConfigError
from rlvr_core.config.guards import DEFAULTS, in_order
from rlvr_core.config.resolve import resolve_file
from rlvr_core.plugins.host import load_host
from rlvr_core.run.events import build_guards

BASE = """
model: {path: m}
data: {sources: [{use: core/jsonl, with: {path: d.jsonl, prompt: q, verifier: core/exact}}]}
train: {steps: 1}
"""


def resolved(guards="", overrides=()):
    return resolve_file("c.yaml", overrides, load_host(), text=BASE + guards)


def on(config):
    return [config.guards[place].use for place in in_order(config.guards)]


def test_without_a_word_all_defaults_are_on_in_their_order():
    assert on(resolved().config) == list(DEFAULTS)
    assert list(build_guards(resolved()).guards) == list(DEFAULTS)


def test_one_is_given_options_one_is_off_and_one_is_added():
    config = resolved(
        "guards: [core/shadow, {use: idle, with: {max_steps: 3}}, {use: seeds, off: true}]"
    ).config
    assert on(config) == [*(name for name in DEFAULTS if name != "core/seeds"), "core/shadow"]
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
        "guards: [{use: core/idle, with: {max_steps: 3}}, {use: core/seeds, off: true}]",
        "guards: [{use: defaults, off: true}, core/parity]",
    ],
)
def test_a_resolved_list_is_the_whole_list_and_can_be_run_itself(guards, monkeypatch):
    first = resolved(guards)
    # whatever a later version has on by default
    monkeypatch.setattr("rlvr_core.config.guards.DEFAULTS", (*DEFAULTS, "core/shadow"))
    again = resolve_file("again.yaml", [], load_host(), text=first.yaml())
    assert on(again.config) == on(first.config)
    assert yaml.safe_load(again.yaml()) == yaml.safe_load(first.yaml())


def test_the_mapping_of_older_versions_is_answered_by_the_new_form():
    for given in ({"guards": "guards: {preflight: true}"}, {"overrides": ["guards.parity=false"]}):
        with pytest.raises(ConfigError) as caught:
            resolved(**given)
        (complaint,) = caught.value.complaints
        assert "now: [{use: core/parity, off: true}" in complaint.what


@pytest.mark.parametrize(
    ("guards", "words"),
    [
        ("[{use: core/idle, with: {max_step: 3}}]", "did you mean: max_steps"),
        ("[core/partiy]", "parity"),
        ("[defaults]", "defaults can only be switched off"),
    ],
)
def test_faults_have_lines(guards, words):
    with pytest.raises(ConfigError) as caught:
        resolved(f"guards: {guards}")
    assert words in str(caught.value)
    assert "c.yaml:5" in str(caught.value)


def test_a_guard_of_ones_own_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "class Mine:\n"
        "    def on_groups(self, event): ...\n"
        "    def on_step(self, event): ...\n"
        "    def __init__(self, config): ...\n"
    )
    guards = build_guards(resolved("guards: [./mine.py:Mine]")).guards
    assert list(guards) == [*DEFAULTS, "./mine.py:Mine"]
