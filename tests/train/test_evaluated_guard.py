"""Guard ``seeds``: the completions of an evaluation are those of its seeds and its temperature."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))

from small import small_model  # type: ignore
from test_invariants import run_config, trainer_with
from test_streams import Stops

from rlvr_core.api import (
    Completion,
    EngineTraits,
    EvalFinished,
    EvalReport,
    Group,
    Judged,
    Problem,
    RunError,
    SamplingParams,
)
from rlvr_core.api.services import ComponentRef
from rlvr_core.builtin.guards.seeds import Seeds
from rlvr_core.builtin.invariants.evaluated import moments_at
from rlvr_core.builtin.invariants.invariants import invariants_of
from rlvr_core.builtin.invariants.moments import LOGP, ROW
from rlvr_core.builtin.samplers.epochs import Shuffle
from rlvr_core.engines.decode import HuggingFaceDecoder, RowPlan, decode
from rlvr_core.engines.sampling import completion_seed
from rlvr_core.step.step import PolicyTrainer

PROBLEMS, N, VERSION = 8, 3, 5


class Lab:
    """A trainer whose guard is told of evaluations that the engine's own loop samples."""

    traits = EngineTraits(inverts_stream=True)

    def __init__(self, temperature=1.0, **params):
        # training samples at 1
        self.trainer = trainer_with(model=small_model(num_hidden_layers=2))
        with torch.no_grad():
            self.trainer.model.lm_head.weight.mul_(0.3)
        self.params = SamplingParams(temperature, max_tokens=8, **params)
        self.evaluations = SimpleNamespace(latest=None)
        own, said = SimpleNamespace(traits=self.traits), []
        config = run_config(self.trainer.train)
        config.eval.tasks.append(ComponentRef(use="core/dataset"))
        self.guard = invariants_of(
            config,
            self.trainer,
            own,
            Shuffle(Shuffle.Config()),
            evaluations=self.evaluations,
            repeats=Seeds,
            say=said.append,
        )
        checks, self.said = self.guard._checks, " ".join(said)
        self.guard._checks = {name: checks[name] for name in ("seeds",) if name in checks}

    def groups(self, params=None, seed=completion_seed):
        """Sample the task's problems."""
        found = []
        for place in range(PROBLEMS):
            prompt, id_ = (3, 4 + place, 5), f"e{place}"
            seeds = [seed(0, id_, VERSION, place, sample) for sample in range(N)]
            with torch.no_grad():
                rows = decode(
                    HuggingFaceDecoder(self.trainer.model),
                    [prompt],
                    [[RowPlan(params or self.params, one, 8) for one in seeds]],
                    eos_ids=(1,),
                    stop_strings=Stops(),
                )
            members = tuple(
                Judged(
                    Completion(
                        prompt,
                        one.token_ids,
                        one.logprobs,
                        (True,) * len(one.token_ids),
                        "x",
                        one.finish_reason,
                        VERSION,
                    ),
                    {},
                    1.0,
                    True,
                )
                for one in rows
            )
            problem = Problem(id_, "?", "core/exact", {}, "toy")
            found.append(Group(problem, members, VERSION))
        return found

    def evaluate(self, groups, step=4):
        """Tell the guard of an evaluation with these groups."""
        evaluation = SimpleNamespace(
            name="core/dataset", sampled=[SimpleNamespace(group=one) for one in groups]
        )
        self.evaluations.latest = (evaluation, self.params)
        self.guard.eval_finished(EvalFinished(step, "core/dataset", EvalReport({}, len(groups))))


@pytest.mark.parametrize(
    "lab",
    [
        lambda: Lab(),
        lambda: Lab(0.6),
        lambda: Lab(1.4),
        lambda: Lab(0.0),
        lambda: Lab(0.8, top_k=5),
        lambda: Lab(1.0, top_p=0.7),
    ],
)
def test_healthy_evaluations_are_quiet(lab):
    here = lab()
    for step in range(3):
        here.evaluate(here.groups(), step)
    state = here.guard.state_dict()
    other = lab()
    other.guard.load_state_dict(state)
    assert other.guard.state_dict() == state


@pytest.mark.parametrize(("task", "really"), [(1.0, 0.6), (0.6, 1.0), (0.0, 1.0), (1.0, 0.0)])
def test_another_temperature_than_the_tasks(task, really):
    lab = Lab(task)
    words = "guard seeds: in the evaluation core/dataset after 4 steps"
    with pytest.raises(RunError, match=words):
        lab.evaluate(lab.groups(replace(lab.params, temperature=really)))


@pytest.mark.parametrize("way", [Lab, lambda *a, **more: OwnWay(*a, **more)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_that_the_tasks_top_p_leaves_out(way, dtype):
    lab = way(1.0, top_p=0.7)
    lab.trainer.precision = SimpleNamespace(compute=dtype, autocast=None)
    lab.evaluate(lab.groups())
    with pytest.raises(RunError, match=r"beyond the likeliest ones that top_p 0\.7 keeps"):
        lab.evaluate(lab.groups(replace(lab.params, top_p=0.95)))


def test_top_p_that_keeps_less_than_the_task_says():
    """No token is outside; the numbers of their seeds draw others."""
    lab = Lab(1.0, top_p=0.9)
    with pytest.raises(RunError, match="are not those that the random numbers of their seeds draw"):
        lab.evaluate(lab.groups(replace(lab.params, top_p=0.85)))


def test_what_failed_is_asked_again():
    """A half of the answers are those of a second try, with other seeds."""
    lab = Lab()

    def second(run, id_, version, draw, sample):
        return completion_seed(run, id_, version + 1000 * (draw % 2), draw, sample)

    with pytest.raises(RunError, match="in the evaluation") as caught:
        lab.evaluate(lab.groups(seed=second))
    assert "completions have other seeds than theirs" in str(caught.value)


def test_the_answers_of_older_weights():
    lab = Lab()
    groups = lab.groups()
    with torch.no_grad():
        lab.trainer.model.lm_head.weight.mul_(1.5)
    with pytest.raises(RunError, match="trainer and engine disagree on tokens at temperature 1"):
        lab.evaluate(groups)


def test_slightly_older_weights_show_in_half_precision():
    """Each evaluation is within the bands of a token; together their k3 is not."""
    lab = Lab()
    lab.trainer.precision = SimpleNamespace(compute=torch.bfloat16, autocast=None)
    lab.evaluate(lab.groups())

    def evaluate_older(n):
        for step in range(n):
            groups = lab.groups()
            with torch.no_grad():
                lab.trainer.model.lm_head.weight.mul_(1.02)
            lab.evaluate(groups, step)

    with pytest.raises(RunError, match="of all evaluations"):
        evaluate_older(8)


def test_an_evaluation_of_another_name_is_not_looked_at():
    lab = Lab()
    groups = lab.groups(replace(lab.params, temperature=0.5))
    evaluation = SimpleNamespace(
        name="other", sampled=[SimpleNamespace(group=one) for one in groups]
    )
    lab.evaluations.latest = (evaluation, lab.params)
    lab.guard.eval_finished(EvalFinished(4, "core/dataset", EvalReport({}, 0)))


@pytest.mark.parametrize("index", [0, 1])
def test_every_process_of_a_run_finds_what_is_wrong_with_the_part_of_one(index, monkeypatch):
    """Groups of the odd places, which the second of two processes sampled, are too cool."""
    lab = Lab()
    alone, scores = lab.trainer.ranks, PolicyTrainer.token_scores
    lab.trainer.ranks = both = SimpleNamespace(index=index, world=2, main=index == 0)

    def of_both(trainer, *arguments):
        """What the two compute together."""
        trainer.ranks = alone
        try:
            return scores(trainer, *arguments)
        finally:
            trainer.ranks = both

    monkeypatch.setattr(PolicyTrainer, "token_scores", of_both)
    honest, cool = lab.groups(), lab.groups(replace(lab.params, temperature=0.5))
    lab.evaluate(honest)
    woven = [(cool if place % 2 else honest)[place] for place in range(PROBLEMS)]
    with pytest.raises(RunError, match="in the evaluation"):
        lab.evaluate(woven)


# -- engines that draw in a way of their own ------------------------------------------------------


class OwnWay(Lab):
    """An engine whose draws are its own; log-probs are what is known of it."""

    traits = EngineTraits()

    def groups(self, params=None, seed=completion_seed, version=0):
        """Sample with seeds that are nobody's; log-probs are those at the task's temperature."""

        def own(run, id_, _, draw, sample):
            return seed(run + 77, id_, version, draw, sample)

        found = super().groups(params, own)
        if params is None or params.temperature == self.params.temperature:
            return found
        return [self.as_reported(one) for one in found]

    def as_reported(self, group):
        """The same tokens with the log-probs that they have at the task's temperature."""
        scores_NK = self.trainer.token_scores((group,), moments_at(self.params, torch.float32))
        rows = scores_NK[:, ROW].tolist()
        members = []
        for place, member in enumerate(group.members):
            logps = [
                x for x, row in zip(scores_NK[:, LOGP].tolist(), rows, strict=True) if row == place
            ]
            completion = replace(member.completion, logprobs=tuple(logps))
            members.append(replace(member, completion=completion))
        return replace(group, members=tuple(members))


@pytest.mark.parametrize("temperature", [1.0, 0.6, 0.0])
def test_an_engine_of_its_own_way_is_quiet_when_healthy(temperature):
    lab = OwnWay(temperature)
    assert "which seeds draw their tokens is not" in lab.said
    for step in range(6):
        lab.evaluate(lab.groups(version=step), step)
    state = lab.guard.state_dict()
    other = OwnWay(temperature)
    other.guard.load_state_dict(state)
    assert other.guard.state_dict() == state


@pytest.mark.parametrize(
    ("task", "really", "words"),
    [(1.0, 0.4, "less surprising|fewer are unlikely"), (0.5, 1.0, "more surprising|more are unl")],
)
def test_another_temperature_than_the_reported_one(task, really, words):
    lab = OwnWay(task)

    def evaluate(n):
        for step in range(n):
            groups = lab.groups(replace(lab.params, temperature=really), version=step)
            lab.evaluate(groups, step)

    with pytest.raises(RunError, match=words):
        evaluate(12)


def test_completions_that_repeat():
    lab = OwnWay()

    def first(run, id_, version, draw, _):
        return completion_seed(run, id_, version, draw, 0)

    with pytest.raises(RunError, match="repeat an earlier one of their prompt"):
        lab.evaluate(lab.groups(seed=first))


def test_an_engine_without_seeds_is_not_checked_and_the_run_says_so():
    class Scripted(OwnWay):
        traits = EngineTraits(seeded=False)

    assert "not checked, as the engine draws by no seeds" in Scripted().said
