"""Guard ``guards/shadow``: verifiers that pay nothing are compared with the one that pays."""

from types import SimpleNamespace

import pytest

from rlvr_core.api import (
    Completion,
    Group,
    GroupsScored,
    Judged,
    Problem,
    RunError,
    Verdict,
    VerifierTraits,
)
from rlvr_guards.shadow import Shadow

VERIFIERS = {
    name: SimpleNamespace(traits=VerifierTraits(decides=decides))
    for name, decides in {
        "toy/other": True,
        "toy/third": True,
        "checks/degenerate": False,
        "core/overlong": False,
    }.items()
}
DONE = Completion((1,), (2,), (-1.0,), (True,), "", "stop", 0)


def judged(paid, shadow, third=1.0):
    other = Verdict(None, "unscorable") if shadow is None else Verdict(shadow)
    verdicts = {"auto": Verdict(paid), "toy/other": other, "toy/third": Verdict(third)}
    return Judged(DONE, verdicts, paid, paid == 1.0)


def step(guard, *members):
    guard.bind(SimpleNamespace(judge=SimpleNamespace(plan=SimpleNamespace(verifiers=VERIFIERS))))
    group = Group(Problem("p", "?", "v", {}, "d"), members, 0)
    guard.on_groups(GroupsScored(0, 0, (group,)))
    return guard.report()


def test_shares_by_hand():
    """Of four that both judged, two pass by the first alone and one by the shadow alone."""
    guard = Shadow(Shadow.Config(verifiers=("toy/other",)))
    members = [judged(1.0, 0.0), judged(1.0, 0.5), judged(0.0, 1.0), judged(1.0, 1.0)]
    assert step(guard, *members, judged(1.0, None)) == {
        "shadow/disagreement/toy/other": 0.75,
        "shadow/first_alone/toy/other": 0.5,
    }
    # another step is counted by itself
    assert step(guard, judged(0.0, 0.0))["shadow/disagreement/toy/other"] == 0.0
    assert step(guard, judged(0.0, None)) == {}


def test_all_others_by_default_and_unknown_names():
    shares = step(Shadow(Shadow.Config()), judged(1.0, 1.0, 0.0))
    assert shares["shadow/disagreement/toy/other"] == 0.0
    assert shares["shadow/first_alone/toy/third"] == 1.0
    with pytest.raises(RunError, match="no entry 'toy/none'") as raised:
        step(Shadow(Shadow.Config(verifiers=("toy/none",))), judged(1.0, 1.0))
    assert "toy/other, toy/third" in str(raised.value.complaints[0].remedy)


FILTERS = {"core/overlong": Verdict(-1.0)}


def test_verifiers_that_do_not_say_what_is_right_are_not_compared():
    verdicts = {"auto": Verdict(1.0), "toy/other": Verdict(0.0), **FILTERS}
    assert step(Shadow(Shadow.Config()), Judged(DONE, verdicts, 1.0, True)) == {
        "shadow/disagreement/toy/other": 1.0,
        "shadow/first_alone/toy/other": 1.0,
    }


@pytest.mark.parametrize("named", [(), ("core/overlong",)])
def test_a_filter_alone_or_by_name_is_refused(named):
    member = Judged(DONE, {"auto": Verdict(1.0), **FILTERS}, 1.0, True)
    with pytest.raises(RunError, match=r"says? what is right"):
        step(Shadow(Shadow.Config(verifiers=named)), member)
