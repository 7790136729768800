"""Guard ``reported``: figures by hand, healthy steps, and lines that say something else."""

import math
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "guards"))

from custody import Run, byte_level, sentence_pieces  # type: ignore
from test_invariants import run_config, sample, trainer_with, with_kl  # type: ignore
from test_loss_guard import imitating  # type: ignore

from rlvr_core.algorithm.entropy import entropy_threshold
from rlvr_core.api import (
    Completion,
    Draw,
    Drop,
    Group,
    GroupsScored,
    Judged,
    Problem,
    RunError,
    StepFinished,
    Usage,
    Verdict,
)
from rlvr_core.api.rollouts import Rollouts, Sampled
from rlvr_core.builtin.invariants.check import Invariant
from rlvr_core.builtin.invariants.figures import (
    ages_of,
    contradictions,
    details_beyond,
    figures_of,
    reasons_of,
    too_many,
    trained_figures,
)
from rlvr_core.builtin.invariants.invariants import Invariants
from rlvr_core.builtin.invariants.moments import TokenScores
from rlvr_core.builtin.invariants.records import Records, _other_fates
from rlvr_core.builtin.invariants.reported import Reported
from rlvr_core.builtin.invariants.tallies import Tallied, _weights, tally
from rlvr_core.builtin.losses.gmpo import GMPO
from rlvr_core.builtin.losses.policy_family import SAPO
from rlvr_core.builtin.samplers.base import GroupSize
from rlvr_core.builtin.samplers.epochs import Shuffle
from rlvr_core.losses import DAPO, GRPO, GSPO
from rlvr_core.record.recorder import Recorder
from rlvr_core.record.rundir import RunFolder
from rlvr_core.run.metrics import rollout_metrics


def member(length, reward, end="stop", status="ok", token=5):
    ids = (token,) * length
    done = Completion((1, 2), ids, (-1.0,) * length, (True,) * length, "x", end, 0)
    passed = None if reward is None else reward >= 1
    return Judged(done, {"v": Verdict(reward, status)}, reward, passed)


def two_groups():
    first = (
        member(2, 1.0),
        member(4, 0.0, "length"),
        member(4, 0.0),
        member(2, None, "stop", "error"),
    )
    second = (member(3, 0.0), member(5, 0.0))
    return [
        Group(Problem("p", "?", "v", {}, "a"), first, 0),
        Group(Problem("q", "?", "v", {}, "b"), second, 0),
    ]


def test_figures_by_hand():
    due = figures_of(two_groups())
    assert due == pytest.approx(
        {
            "groups/drawn": 2,
            "groups/zero_variance": 1,
            "groups/none_passed": 1,
            "groups/size": 3,
            "unique_rate": 4 / 6,
            "length/mean": 20 / 6,
            "length/max": 5,
            "truncated_rate": 1 / 6,
            "tokens/prompt": 4,
            "tokens/completion": 20,
            "stop/stop": 5,
            "stop/length": 1,
            "reward/v": 0.2,
            "verify/error_rate": 1 / 6,
            "reward/mean": 0.2,
            "reward/std": 0.4,
            "pass_rate": 0.2,
            "pass_rate/a": 1 / 3,
            "pass_rate/b": 0.0,
        }
    )
    trained = trained_figures(two_groups()[:1], mask_truncated=True)
    assert trained == {"rows": 2, "tokens/loss": 6, "groups/lone": 0}


def test_they_are_those_that_a_run_reports():
    draws = [Sampled(Draw(one.problem, 3, n), "", one) for n, one in enumerate(two_groups())]
    dropped = replace(draws[1], drop=Drop("zero_variance", "all_failed"))
    line = rollout_metrics(Rollouts(kept=draws[:1], dropped=[dropped]))
    assert contradictions(line, figures_of(two_groups())) == []


def finish(trainer, n=2, change=lambda name, value: value, **more):
    """Take steps whose line is what a run makes of them; ``change`` changes it."""
    version = 0
    for step in range(n):
        groups = sample(trainer.model, seed=step, version=version, **more)
        kept = [Sampled(Draw(one.problem, 6, k), "", one) for k, one in enumerate(groups[1:])]
        lost = Sampled(
            Draw(groups[0].problem, 6, 99), "", groups[0], Drop("zero_variance", "equal")
        )
        trainer.observer.on_groups(GroupsScored(step, version, tuple(groups)))
        report = trainer.update(groups[1:], step, version)
        line = rollout_metrics(Rollouts(kept=kept, dropped=[lost])) | report.metrics
        drawn = sum(len(one.members) for one in groups)
        line |= {"groups/replayed": 0, "step_skipped": 0.0, "lr": trainer.train.lr}
        line |= {"ledger/drawn": drawn, "ledger/trained": drawn - 6, "ledger/zero_variance": 6}
        line |= {"ledger/in_flight": 0, "ledger/error": 0}
        line = {name: change(name, value) for name, value in line.items()}
        line = {name: value for name, value in line.items() if value is not None}
        trainer.observer.on_step(StepFinished(step, version, line))
        version += report.applied
    return line


SHAPES = [
    (None, {}),
    (with_kl, {"reference": "frozen", "mini_batches": 2, "num_iterations": 2}),
    (DAPO(DAPO.Config(entropy_bonus=0.01)), {"tokens_per_micro_batch": 40}),
    (GSPO(GSPO.Config()), {"num_iterations": 3}),
    # its clips bound the logarithm of a ratio
    (GMPO(GMPO.Config()), {"mini_batches": 3, "num_iterations": 2, "lr": 0.1}),
]


@pytest.mark.parametrize(("loss", "more"), SHAPES)
def test_healthy_lines_are_quiet(loss, more):
    line = finish(trainer_with(loss, **more))
    assert line["groups/kept"] == 5


@pytest.mark.parametrize("train", [{}, {"num_iterations": 2, "mini_batches": 2}])
def test_losses_on_given_answers_are_in_the_sum(train):
    line = finish(imitating(weight=0.3, **train))
    whole = line["loss/l"] + 0.3 * line["loss/sft"]
    assert line["loss"] == pytest.approx(whole, rel=1e-6)

    def plain(name, value):
        return value + 0.7 * abs(whole) if name == "loss" else value

    with pytest.raises(RunError, match=r"guard reported: .*loss is "):
        finish(imitating(weight=0.3, **train), change=plain)
    assert "sft/nll" in line
    with pytest.raises(RunError, match=r"guard reported: .*sft/nll is "):
        finish(imitating(**train), change=lambda n, v: 1.1 * v if n == "sft/nll" else v)
    with pytest.raises(RunError, match=r"guard reported: .*loss/sft is "):
        finish(imitating(**train), change=lambda n, v: 2 * v if n == "loss/sft" else v)


EVERY = trainer_with(with_kl, reference="frozen", mini_batches=2, num_iterations=2)
"""Not trained: what a step of it reports is asked for below."""

NAMES = (
    *("reward/mean", "reward/std", "pass_rate", "length/mean", "length/max", "truncated_rate"),
    *("groups/drawn", "groups/kept", "groups/equal", "groups/zero_variance", "groups/none_passed"),
    *("groups/size", "unique_rate", "tokens/prompt", "tokens/completion", "tokens/loss", "rows"),
    *("stop/stop", "ledger/drawn", "ledger/trained", "ledger/zero_variance", "lr", "grad_norm"),
    *("loss", "kl/mean", "kl/max", "ratio/mean", "ratio/max", "entropy/mean", "updates/applied"),
    *("clip_fraction/low", "clip_fraction/high", "mismatch/abs_mean"),
    *("grad_norm/max", "updates/missing", "rows/read"),
    *("iteration/1/ratio/mean", "iteration/2/ratio/max", "iteration/2/clip_fraction/low"),
)


@pytest.fixture(scope="module")
def healthy_step():
    """The invariant after a healthy step, and its line."""
    from rlvr_core.builtin.invariants.reported import Reported

    kept = {}
    real = Reported.finished

    def finished(self, event):
        kept["state"] = (self._drawn, self._view, self._updates)
        kept["guard"], kept["line"], kept["step"] = self, event.metrics, event.step
        real(self, event)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Reported, "finished", finished)
        finish(EVERY, n=1)
    return kept


def again(kept, line):
    guard = kept["guard"]
    guard._drawn, guard._view, guard._updates = kept["state"]
    guard.finished(StepFinished(kept["step"], 0, line))


@pytest.mark.parametrize("name", NAMES)
def test_each_figure_that_is_wrong(healthy_step, name):
    line = healthy_step["line"]
    again(healthy_step, line)
    for found in (line[name] * 1.05 + 0.001, None):
        changed = {k: v for k, v in (line | {name: found}).items() if v is not None}
        if found is None and name.startswith(
            ("groups/equal", "ledger/zero", "updates/", "rows/read")
        ):
            continue
        with pytest.raises(RunError, match="guard reported") as caught:
            again(healthy_step, changed)
        text = str(caught.value)
        named = {"groups/equal": "groups were dropped", "ledger/zero_variance": "ledger settles"}
        assert named.get(name, f"{name} is") in text
        assert "rlvr docs guards#reported" in text


def test_a_figure_of_what_never_came(healthy_step):
    with pytest.raises(RunError, match="stop/abort is 3, and there is none"):
        again(healthy_step, healthy_step["line"] | {"stop/abort": 3})


def test_ages_by_hand():
    """Three and two completions have a reward, one of them was cut off; 3 and 1 updates old."""
    groups = [
        replace(one, version=version) for one, version in zip(two_groups(), (2, 4), strict=True)
    ]
    due = ages_of(groups, 5, mask_truncated=False)
    assert due == {"staleness/mean": (3 * 3 + 2 * 1) / 5, "staleness/max": 3}
    assert ages_of(groups, 5, mask_truncated=True)["staleness/mean"] == (2 * 3 + 2 * 1) / 4
    assert ages_of([], 5, mask_truncated=False) == {}


def test_reasons_that_no_dropped_group_has():
    failed = two_groups()[1]
    line = {"groups/all_passed": 1, "groups/all_failed": 0}
    assert too_many(line, [failed]) == [
        "groups/all_passed is 1, and 0 of the dropped groups are such"
    ]
    assert too_many({"groups/all_passed": 0, "groups/all_failed": 1}, [failed]) == []


def test_details_of_fates_by_hand():
    """Two completions of the dropped group failed; what is told as more cannot be."""
    failed = two_groups()[1]
    line = {"ledger/zero_variance": 2, "ledger/zero_variance/all_failed": 2}
    assert details_beyond(line, [failed]) == []
    line = {"ledger/zero_variance/all_failed": 3, "ledger/zero_variance/all_passed": 1}
    line |= {"ledger/stale/too_old": 2, "ledger/stale": 1}
    assert details_beyond(line, [failed]) == [
        "ledger/zero_variance/all_passed is 1, and at most 0 completions can be such",
        "ledger/zero_variance/all_failed is 3, and at most 2 completions can be such",
        "ledger/stale/too_old is 2, and at most 1 completions can be such",
    ]


def one_group(*rewards):
    members = [member(2, r, status="ok" if r is not None else "unscorable") for r in rewards]
    return replace(two_groups()[0], members=tuple(members))


def test_reasons_of_dropped_groups_by_hand():
    """Two all right, one all wrong, one whose halves are equal, one with one score, one without."""
    dropped = [one_group(1, 1), one_group(1, 1), one_group(0, 0), one_group(2, None)]
    equal = one_group(1, 1)
    odd = tuple(replace(one, passed=place > 0) for place, one in enumerate(equal.members))
    due = reasons_of([*dropped, replace(equal, members=odd), one_group(None, None)])
    assert due == {
        "groups/all_passed": 2,
        "groups/all_failed": 1,
        "groups/equal": 1,
        "groups/dropped/one_scored": 1,
        "groups/dropped/unscorable": 1,
        "ledger/zero_variance": 9,
        "ledger/zero_variance/all_passed": 4,
        "ledger/zero_variance/all_failed": 2,
        "ledger/zero_variance/equal": 2,
        "ledger/zero_variance/one_scored": 1,
    }


@pytest.mark.parametrize("name", ["all_passed", "all_failed", "equal", "one_scored", "unscorable"])
def test_they_are_those_that_the_samplers_give(name):
    """A plain rule of theirs, and the code of the samplers, of the same groups."""
    rewards = {
        "all_passed": (1, 1),
        "all_failed": (0, 0),
        "equal": (0.5, 0.5),
        "one_scored": (1, None),
        "unscorable": (None, None),
    }
    group = one_group(*rewards[name])
    if name == "equal":
        halves = tuple(replace(one, passed=at > 0) for at, one in enumerate(group.members))
        group = replace(group, members=halves)
    sampler = Shuffle(Shuffle.Config())
    sampler._size = GroupSize(2, 2)
    drop = sampler.observe(group)
    sampled = Sampled(Draw(group.problem, 2, 0), "q", group, drop)
    line = rollout_metrics(Rollouts([], [sampled]))
    due = {key: n for key, n in reasons_of([group]).items() if key.startswith("groups/")}
    assert {key: line[key] for key in due} == due


def test_reasons_are_held_where_the_samplers_are_ours(healthy_step):
    line = healthy_step["line"]
    config = run_config(EVERY.train)
    ours = Reported(config, sampler=Shuffle(Shuffle.Config()))
    theirs = Reported(config, sampler=SimpleNamespace())
    dropped = one_group(1, 1)
    told = line | {"ledger/drawn": 2, "ledger/trained": 0, "ledger/zero_variance": 2}
    told |= {name: 0 for name in line if name.startswith("groups/")}
    told |= {"groups/dropped/zero_variance": 1, "ledger/in_flight": 0, "ledger/error": 0}
    wrong = ours._of_ledger([dropped], set(), told)
    assert "groups/all_passed is 0, and must be 1" in wrong
    assert theirs._of_ledger([dropped], set(), told) == []


def test_groups_that_never_expire_ahead_of_training(healthy_step):
    """Beside training a step's line says how many groups became too old to be read again."""
    train = EVERY.train.model_copy(update={"max_staleness": 4})
    ahead = Reported(run_config(train))
    drawn, view, ahead._updates = healthy_step["state"]
    line = healthy_step["line"] | {"staleness/mean": 0, "staleness/max": 0}
    (what,) = ahead._of_groups(drawn, view, line)
    assert what.startswith("staleness/expired is not there")
    assert ahead._of_groups(drawn, view, line | {"staleness/expired": 0}) == []


def test_what_judges_spent_by_hand():
    """7 + 5 requests; one of the two counted its tokens."""
    group = two_groups()[1]
    verdicts = [
        {"v": Verdict(0.0, usage=Usage(7, prompt_tokens=30, cost=0.5))},
        {"v": Verdict(0.0, usage=Usage(5))},
    ]
    members = tuple(map(lambda one, v: replace(one, verdicts=v), group.members, verdicts))
    due = figures_of([replace(group, members=members)])
    told = {name: due[name] for name in due if name.startswith("verify/")}
    spent = {"verify/requests": 12, "verify/prompt_tokens": 30, "verify/cost": 0.5}
    assert told == spent | {"verify/error_rate": 0}


MORE = {
    "gate/mean": (SAPO(SAPO.Config()), {"num_iterations": 2}),
    "entropy/threshold": (GRPO(GRPO.Config(top_entropy=0.3)), {}),
    "entropy/chosen": (GRPO(GRPO.Config(top_entropy=0.3)), {}),
    "off_policy/drift_max": (GRPO(GRPO.Config(off_policy_mask=0.001)), {"num_iterations": 2}),
    "off_policy/dropped": (GRPO(GRPO.Config(off_policy_mask=0.001)), {"num_iterations": 2}),
}


@pytest.mark.parametrize("name", MORE)
def test_figures_of_options(name):
    """Each is quiet as it is, and named when its loss counts something else."""
    loss, more = MORE[name]
    line = finish(trainer_with(loss, **more))
    assert math.isfinite(line[name])
    if name == "off_policy/dropped":
        assert 0 < line[name] < 1

    def change(key, value):
        return value * 1.2 + 0.1 if key == name else value

    with pytest.raises(RunError, match=f"guard reported: .*{name} is"):
        finish(trainer_with(loss, **more), change=change)


def test_a_threshold_between_two_tokens_of_few():
    """The quantile of 0.1, 0.2 and 1.2 at 0.7 is 0.6: the least token chosen has twice as much."""
    assert entropy_threshold(torch.tensor([0.1, 0.2, 1.2]), 0.3) == pytest.approx(0.6)
    one = Tallied(threshold=1.2, left=-math.inf)
    one.add(Tallied(left=0.2))  # seen by another process
    due, bands = one.figures()
    assert due["entropy/threshold"] == pytest.approx(0.7)
    # half the distance, and 5 % of 1 + 1.2
    assert bands["entropy/threshold"] == pytest.approx(0.5 + 0.11)
    due, bands = Tallied(threshold=1.2).figures()
    assert (due["entropy/threshold"], bands["entropy/threshold"]) == pytest.approx((1.2, 0.11))


def test_what_invariants_handed_on_is_on_the_line():
    trainer = trainer_with()
    with pytest.raises(RunError, match=r"guard reported: .*parity/k3 is 0\.25"):
        finish(trainer, change=lambda name, value: 0.25 if name == "parity/k3" else value)


def test_the_doubt_of_squared_weights_follows_the_cap():
    """One of two tokens is at the cap of 3, so its square may be 9 or nothing."""
    rule = {"mode": "token_mask", "cap": 3.0, "floor": 0.1}
    batch = SimpleNamespace(mask_BT=torch.tensor([[True, True]]))
    gap_BT = torch.tensor([[math.log(3.0), 0.0]], dtype=torch.float64)
    means, unsure = {}, {}
    options = GRPO.Config(importance_correction=rule)
    _weights(options, batch, gap_BT, means, unsure)
    assert {name: value.tolist() for name, value in unsure.items()} == {
        "mismatch/truncated": [[1.0, 0.0]],
        "mismatch/weight": [[3.0, 0.0]],
        "mismatch/weight_square": [[9.0, 0.0]],
    }


def test_the_effective_sample_size_by_hand():
    """Weights 1, 1 and 2: (4)^2 over 3 times 6."""
    found = Tallied(
        sums={"mismatch/weight": (4.0, 3.0, 0.0), "mismatch/weight_square": (6.0, 3.0, 0.0)}
    )
    due, _ = found.figures()
    assert due == pytest.approx({"mismatch/weight": 4 / 3, "mismatch/ess": 16 / 18})


@pytest.mark.parametrize("mode", ["token_truncate", "token_mask", "sequence_mask", "sequence_geo"])
def test_importance_weights_are_those_of_the_loss(mode):
    rule = {"mode": mode, "cap": 1.05, "floor": 0.3}
    trainer = trainer_with(GRPO(GRPO.Config(importance_correction=rule)))
    groups = sample(trainer.model)
    groups = [
        replace(group, members=tuple(replace(one, completion=apart(one.completion))
                                     for one in group.members))
        for group in groups
    ]  # fmt: skip
    seen = {}

    def judged(view):
        total = Tallied()
        total.add(tally(view))
        seen["due"], seen["bands"] = total.figures()

    trainer.observer = watching(trainer, judged)
    line = trainer.update(groups, 0, 0).metrics
    assert 0 < line["mismatch/truncated"] < 1
    assert contradictions(line, seen["due"], seen["bands"]) == []
    assert seen["due"]["mismatch/ess"] == pytest.approx(line["mismatch/ess"], rel=1e-3)


def apart(completion):
    """The same with log-probs further from the trainer's, of a third of the rows on one side."""
    side = 0.1 * (sum(completion.token_ids) % 3 - 1)
    moved = [logp - side - 0.1 * (t % 3 - 1) for t, logp in enumerate(completion.logprobs)]
    return replace(completion, logprobs=tuple(moved))


def watching(trainer, judged):
    """An observer of the trainer's steps that hands an update's view on."""

    class Watch(Invariant):
        id, phase = "watch", "before each update"

        def share(self, view):
            judged(view)

    return Invariants(trainer, [Watch()], TokenScores(trainer))


@pytest.mark.parametrize(
    "lost",
    [
        *("kl/mean", "kl/max", "ratio/mean", "ratio/max", "clip_fraction/low"),
        *("clip_fraction/high", "mismatch/abs_mean", "mismatch/abs_max", "mismatch/k3"),
    ],
)
def test_a_figure_that_the_loss_no_longer_reports(monkeypatch, lost):
    """What the options of a built-in loss make it report is due, whatever it counts."""
    real = GRPO.__call__

    def silent(loss, *given):
        output = real(loss, *given)
        sums, maxima = (
            {name: one for name, one in every.items() if name != lost}
            for every in (output.sums, output.maxima)
        )
        return replace(output, sums=sums, maxima=maxima)

    monkeypatch.setattr(GRPO, "__call__", silent)
    trainer, seen = trainer_with(with_kl, reference="frozen"), {}

    def judged(view):
        seen["due"], seen["bands"] = tally(view).figures()

    trainer.observer = watching(trainer, judged)
    line = trainer.update(sample(trainer.model), 0, 0).metrics
    (what,) = contradictions(line, seen["due"], seen["bands"])
    assert what.startswith(f"{lost} is not there, and is ")


def test_rewards_of_the_groups_kept_alone():
    """The second group was dropped, and its two failures count all the same."""
    first = Sampled(Draw(two_groups()[0].problem, 4, 0), "", two_groups()[0])
    wrong = contradictions(rollout_metrics(Rollouts(kept=[first])), figures_of(two_groups()))
    assert "reward/mean is 0.333333, and must be 0.2" in wrong
    assert "pass_rate is 0.333333, and must be 0.2" in wrong


def test_a_norm_after_clipping(monkeypatch):
    """The optimizer reports 0.5 of what the gradients have."""
    trainer = trainer_with(max_grad_norm=1e9)
    real = trainer.optimizer.step
    trainer.optimizer.step = lambda step: replace(
        told := real(step), grad_norm=0.5 * told.grad_norm
    )
    with pytest.raises(RunError, match="guard optimizer: the norm of the gradient is reported as"):
        finish(trainer)


@pytest.fixture
def recorded(tmp_path):
    """Records of one step with ``two_groups``, written as a run does, and what was handed on."""
    recorder = Recorder(RunFolder(tmp_path))
    records = Records(tmp_path)
    drawn, line = two_groups(), {"reward/mean": 0.2, "pass_rate": 0.2}

    def write(change=lambda group: group, told=line, advantages=(None, 0.5, -0.5, None), led_to=0):
        recorder.metrics(0, 0, told)
        for place, group in enumerate(drawn):
            shown = change(group)
            n = len(shown.members)
            recorder.rollout(0, led_to, shown, "?", ["trained"] * n, list(advantages[:n]), place)
        found = {(id(drawn[0]), ((1, 2), (5,) * 4)): {0.5, -0.5}}
        return records.wrong(0, 0, line, drawn, found)

    yield write
    recorder.close()


def test_records_of_a_healthy_step(recorded):
    assert recorded() == []
    assert recorded() == []  # another step's, behind it


def test_rollouts_under_another_step(tmp_path):
    """Neither a step too late, nor one of them alone."""
    recorder, records = Recorder(RunFolder(tmp_path)), Records(tmp_path)
    drawn = two_groups()

    def wrong(*steps):
        for step, group in zip(steps, drawn, strict=True):
            n = len(group.members)
            recorder.rollout(step, 0, group, "?", ["trained"] * n, [None] * n, 0)
        return records.wrong(3, 0, {}, drawn, {})

    assert wrong(3, 3) == []
    for steps in ((4, 4), (3, 4), (2, 2)):
        other = max(steps) if 4 in steps else 2
        assert f"rollouts.jsonl has groups of step {other}, and it is 3" in wrong(*steps)
    assert wrong(3, 3) == []
    recorder.close()


def test_records_that_say_something_else(recorded):
    assert recorded(told={"reward/mean": 0.2, "pass_rate": 0.4}) == [
        "metrics.jsonl has pass_rate 0.4, and it is 0.2"
    ]

    def turned(group):
        return replace(group, members=(*group.members[1:], group.members[0]))

    wrong = recorded(turned)
    of_p = "of completion 0 of problem p, and it is"
    assert f"rollouts.jsonl has reward 0.0 {of_p} 1.0" in wrong
    assert f"rollouts.jsonl has finish_reason 'length' {of_p} 'stop'" in wrong
    wrong = recorded(lambda group: replace(group, members=group.members[:2]))
    assert (
        "rollouts.jsonl has 2 completions of problem p where the step has 4 of problem p" in wrong
    )
    assert recorded(advantages=(None, 0.5, 0.7, None)) == [
        "rollouts.jsonl has an advantage 0.7 of completion 2 of problem p, and it is -0.5"
    ]


def test_records_of_other_prompts_and_versions(recorded):
    def later(group):
        return replace(group, version=group.version + 1)

    assert f"sampled_version {two_groups()[0].version + 1} of problem p" in recorded(later)[0]

    assert recorded(led_to=1)[0] == "rollouts.jsonl has version 1 of problem p, and it is 0"

    def elsewhere(group):
        return replace(
            group,
            members=tuple(
                replace(one, completion=replace(one.completion, prompt_ids=(1, 7)))
                for one in group.members
            ),
        )

    assert "rollouts.jsonl has prompt_ids [1, 7] of problem p, and it is [1, 2]" in recorded(
        elsewhere
    )


TEXTS = {
    "byte level": ("<|im_start|>user\n2 + 2?<|im_end|>\n", {"eos": "</s>"}),
    "begins with bos": ("Wie gro\u00df?  Two spaces.", {"eos": "</s>", "bos": "<s>"}),
    "sentence pieces": ("a b 2+2?", None),
    "with bytes": ("a \u00e9 b", None),
}


@pytest.mark.parametrize("name", TEXTS)
def test_texts_of_recorded_prompts(tmp_path, name):
    text, options = TEXTS[name]
    made = sentence_pieces() if options is None else byte_level(**options)
    files = Run(tmp_path, made).files
    ids = tuple(files.tokenizer(text)["input_ids"])
    own = replace(two_groups()[0].members[0].completion, prompt_ids=ids)
    group = replace(two_groups()[0], members=tuple(_with(own) for _ in range(2)))
    cases = ((text, True), (text[:-3], False), ("another", False), ("", False))
    for number, (shown, fine) in enumerate(cases):
        folder = tmp_path / f"run {number}"
        folder.mkdir()
        recorder, records = Recorder(RunFolder(folder)), Records(folder, files)
        recorder.rollout(0, 0, group, shown, ["trained"] * 2, [None] * 2, 0)
        wrong = records.wrong(0, 0, {}, [group], {})
        recorder.close()
        assert (wrong == []) == fine, (shown, wrong)
        assert fine or "rollouts.jsonl has the prompt" in wrong[0]


def _with(completion):
    return replace(two_groups()[0].members[0], completion=completion)


def test_records_of_other_fates():
    """One of two was cut off, with and without ``mask_truncated``, trained on and dropped."""

    def wrong(fates, cut):
        group = two_groups()[0]
        ends = ("stop", "length")
        members = tuple(
            replace(one, reward=1.0, completion=replace(one.completion, finish_reason=end))
            for one, end in zip(group.members[:2], ends, strict=True)
        )
        row = {"completions": [{"fate": fate} for fate in fates]}
        return len(_other_fates(row, replace(group, members=members), cut))

    assert wrong(("trained", "trained"), "trained") == 0
    assert wrong(("trained", "truncated"), "truncated") == 0
    assert wrong(("zero_variance", "zero_variance"), None) == 0
    assert wrong(("trained", "trained"), "truncated") == 1
    assert wrong(("zero_variance", "trained"), "trained") == 1
    assert wrong(("trained", "trained"), None) == 2


def test_numbers_that_are_not_finite():
    assert contradictions({"a": math.nan}, {"a": math.nan}) == []
    assert contradictions({"a": math.nan}, {"a": 1.0}) == ["a is nan, and must be 1"]


def test_it_can_be_switched_off():
    config = run_config(SimpleNamespace(model_dump=lambda **_: {"steps": 9}), reported=False)
    assert not config.guards.reported
