import pytest

from rlvr_core.api import Completion, ConfigError, DataError, PluginError, Problem, Verdict
from rlvr_core.config.model import RewardRef
from rlvr_core.plugins.host import load_host
from rlvr_core.verify.reward import RewardPlan, outcome


@pytest.fixture(scope="module")
def host():
    return load_host()


def problem(verifier="exact", **spec):
    return Problem("p1", "?", verifier, spec, "toy")


def plan(host, *rewards, asked=("exact",)):
    return RewardPlan.build([RewardRef.model_validate(reward) for reward in rewards], asked, host)


def verdicts(*values):
    return {f"v{index}": value for index, value in enumerate(values)}


def test_auto_takes_each_problems_own_verifier_under_its_full_name(host):
    made = plan(host, "auto", asked=["exact", "core/exact"])
    assert made.names(problem("exact")) == ("core/exact",)
    assert made.names(problem("core/exact")) == ("core/exact",)
    assert made.main_name(problem()) == "core/exact"
    assert set(made.specs) == {"core/exact"}


def test_one_verifier_with_several_options_goes_under_several_names(host):
    made = plan(
        host,
        "auto",
        {"use": "exact", "with": {"strip": False}},
        {"use": "core/exact", "with": {"field": "other"}},
    )
    assert made.names(problem()) == ("core/exact", "core/exact#2", "core/exact#3")
    assert made.specs["core/exact"].config == {}
    assert made.specs["core/exact#2"].config == {"strip": False}
    loose, strict, other = (made.verifiers[name] for name in made.names(problem()))
    asked = problem(answer="4", other="5")
    four = Completion.from_text(" 4")
    assert [v.verify(asked, four).score for v in (loose, strict, other)] == [1.0, 0.0, 0.0]


def test_unknown_verifiers_are_named(host):
    with pytest.raises(ConfigError, match="core/exat"):
        plan(host, "core/exat")
    with pytest.raises((ConfigError, PluginError), match="nowhere"):
        plan(host, "auto", asked=["nowhere"])
    with pytest.raises(ConfigError, match="p1 asks for verifier 'later'"):
        plan(host, "auto").names(problem("later"))


def test_auto_twice_or_with_options_is_refused(host):
    with pytest.raises(ConfigError, match="twice"):
        plan(host, "auto", "auto")
    with pytest.raises(ConfigError, match="options"):
        plan(host, {"use": "auto", "with": {"strip": False}})


def test_the_reward_is_the_weighted_sum_of_scores(host):
    made = plan(host, {"use": "auto", "weight": 2.0}, {"use": "exact", "weight": -0.5})
    reward, passed = made.combine(verdicts(Verdict(0.75, passed=False), Verdict(0.5)), step=0)
    assert reward == 2.0 * 0.75 - 0.5 * 0.5
    assert passed is False


def test_the_schedule_moves_the_weight_linearly_and_stops(host):
    reward = {"use": "exact", "weight": 0.4, "schedule": {"to": 0.0, "steps": 4}}
    made = plan(host, {"use": "auto", "weight": 0.0}, reward)
    scores = verdicts(Verdict(0.0), Verdict(1.0))
    found = [made.combine(scores, step)[0] for step in (0, 1, 2, 4, 9)]
    assert found == pytest.approx([0.4, 0.3, 0.2, 0.0, 0.0], abs=1e-15)


@pytest.mark.parametrize("status", ["unscorable", "timeout", "error"])
def test_t51_what_cannot_be_judged_is_never_a_reward_of_zero(host, status):
    made = plan(host, "auto", {"use": "exact", "weight": 0.1})
    failed = Verdict(None, status)
    assert made.combine(verdicts(failed, Verdict(1.0)), 0) == (None, None)
    assert made.combine(verdicts(Verdict(1.0), failed), 0) == (None, True)


def test_a_failed_verdict_of_no_weight_does_not_matter(host):
    schedule = {"to": 0.0, "steps": 2}
    made = plan(host, "auto", {"use": "exact", "weight": 1.0, "schedule": schedule})
    found = verdicts(Verdict(1.0, passed=True), Verdict(None, "timeout"))
    assert made.combine(found, step=1) == (None, True)
    assert made.combine(found, step=2) == (1.0, True)


def test_the_outcome_is_the_first_entrys_whatever_the_shaping(host):
    made = plan(host, {"use": "auto", "weight": 0.0}, {"use": "exact", "weight": 1.0})
    assert made.combine(verdicts(Verdict(0.2, passed=True), Verdict(0.0)), 0) == (0.0, True)


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (Verdict(1.0), True),
        (Verdict(0.99), False),
        (Verdict(0.2, passed=True), True),
        (Verdict(1.0, passed=False), False),
        (Verdict(None, "unscorable"), None),
    ],
)
def test_without_a_pass_of_its_own_full_marks_pass(verdict, expected):
    assert outcome(verdict) is expected


def test_check_asks_every_verifier_of_the_problem(host):
    made = plan(host, "auto", {"use": "exact", "with": {"field": "other"}})
    made.check(problem(answer="4", other="5"))
    with pytest.raises(DataError, match="'other'"):
        made.check(problem(answer="4"))
