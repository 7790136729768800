"""Which advantage estimator a run has to have, and what is said of another one."""

from types import SimpleNamespace

import pytest

from rlvr_core.advantages import Center, Group, Rloo
from rlvr_core.api import Group as Drawn
from rlvr_core.api import Problem, RunError
from rlvr_core.builtin.invariants.advantages import Advantages
from rlvr_core.builtin.invariants.estimators import CLASSES, ON_REWARDS, other_estimator
from rlvr_core.config.model import RunConfig
from rlvr_core.host.host import load_host

PLAIN = {
    "model": {"path": "m"},
    "data": {"sources": ["a"]},
    "train": {"steps": 4, "prompts_per_step": 2, "lr": 1e-3},
}


def said(component, *losses, advantage="auto", names=None):
    config = RunConfig.model_validate(
        PLAIN | {"loss": [{"use": one} for one in losses], "advantage": advantage}
    )
    terms = tuple(SimpleNamespace(name=one) for one in names or losses)
    estimator = None if component is None else SimpleNamespace(component=component)
    return other_estimator(config, SimpleNamespace(terms=terms, estimator=estimator))


def made(kind):
    return kind(kind.Config())


@pytest.mark.parametrize(
    ("kind", "losses", "advantage"),
    [
        (Group, ["grpo"], "auto"),
        (Center, ["dr_grpo"], "auto"),
        (Rloo, ["reinforce"], "rloo"),
        (Rloo, ["core/grpo"], "core/rloo"),
        (Group, ["grpo", "sft"], "auto"),
        (Center, ["grpo", "dr_grpo"], "center"),
        (Rloo, ["grpo"], "mine/own"),  # of a plugin
        (Rloo, ["mine/loss"], "auto"),  # of a plugin, which names its own
    ],
)
def test_the_one_that_the_config_means(kind, losses, advantage):
    names = [one.rpartition("/")[2] for one in losses]
    assert said(made(kind), *losses, advantage=advantage, names=names) == ""


def test_no_estimator_where_nothing_learns_from_rewards():
    assert said(None, "sft") == ""
    assert said(None, "gkd") == ""


@pytest.mark.parametrize(
    ("kind", "losses", "advantage", "words"),
    [
        (Center, ["grpo"], "auto", "advantages:Center, and advantage: auto is group for grpo"),
        (Group, ["dr_grpo"], "auto", "advantage: auto is center for dr_grpo"),
        (Group, ["grpo", "sft"], "rloo", "advantage: rloo is rloo for grpo"),
    ],
)
def test_another_one(kind, losses, advantage, words):
    assert words in said(made(kind), *losses, advantage=advantage)


def test_a_loss_on_rewards_without_advantages():
    assert said(None, "grpo") == "the run has no advantages, and grpo learns from them"


def test_the_guard_stops_at_the_first_step():
    objective = SimpleNamespace(
        terms=[SimpleNamespace(name="grpo")],
        estimator=SimpleNamespace(component=made(Center)),
    )
    view = SimpleNamespace(step=0, groups=(), trainer=SimpleNamespace(objective=objective))
    with pytest.raises(RunError, match=r"guard advantages: the advantages are made by .*:Center"):
        Advantages(RunConfig.model_validate(PLAIN)).begin(view)


@pytest.mark.parametrize(
    ("given", "words"), [({"b": 2.0}, ""), ({}, "1, and"), ({"b": 3.0}, "3, and")]
)
def test_the_factor_of_a_source_is_that_of_the_config(given, words):
    config = RunConfig.model_validate(PLAIN)
    first = config.data.sources[0]
    config.data.sources[:] = [first, first.model_copy(update={"advantage_scale": 2.0})]
    sources = [SimpleNamespace(problems=[Problem(id_, "?", "v", {}, "toy")]) for id_ in ("a", "b")]
    guard = Advantages(config, sources)
    groups = [Drawn(one.problems[0], (), 0) for one in sources]
    trainer = SimpleNamespace(advantage_scale=given)
    view = SimpleNamespace(step=0, groups=groups, trainer=trainer)
    if not words:
        guard._check_factors(view)
        return
    with pytest.raises(
        RunError, match=f"of problem b have the factor {words} advantage_scale .* is 2"
    ):
        guard._check_factors(view)


def test_the_names_are_those_of_the_registry():
    """Each built-in estimator has its class here, each built-in loss on rewards its default."""
    registry = load_host().registry
    found = {entry.name: entry.target for entry in registry.of("advantage")}
    assert {f"core/{name}": target for name, target in CLASSES.items()} == {
        name: target for name, target in found.items() if name.startswith("core/")
    }
    defaults = {}
    for entry in registry.of("loss"):
        name = entry.name.removeprefix("core/")
        if name in ON_REWARDS:
            defaults[name] = made(entry.load()).traits.advantage
    assert defaults == {name: "center" if name == "dr_grpo" else "group" for name in ON_REWARDS}
