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
from rlvr_core.builtin.invariants.invariants import invariants_of
from rlvr_core.builtin.samplers.epochs import Shuffle
from rlvr_core.engines.decode import HuggingFaceDecoder, RowPlan, decode
from rlvr_core.engines.sampling import completion_seed

PROBLEMS, N, VERSION = 8, 3, 5


class Lab:
    """A trainer whose guard is told of evaluations that the engine's own loop samples."""

    def __init__(self, temperature=1.0, **params):
        # training samples at 1
        self.trainer = trainer_with(model=small_model(num_hidden_layers=2))
        with torch.no_grad():
            self.trainer.model.lm_head.weight.mul_(0.3)
        self.params = SamplingParams(temperature, max_tokens=8, **params)
        self.evaluations = SimpleNamespace(latest=None)
        own = SimpleNamespace(traits=EngineTraits(inverts_stream=True))
        config = run_config(self.trainer.train)
        self.guard = invariants_of(
            config, self.trainer, own, Shuffle(Shuffle.Config()), evaluations=self.evaluations
        )
        checks = self.guard._checks
        self.guard._checks = {"seeds": checks["seeds"]}

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


def test_an_evaluation_of_another_name_or_in_several_processes_is_not_looked_at():
    lab = Lab()
    groups = lab.groups(replace(lab.params, temperature=0.5))
    evaluation = SimpleNamespace(
        name="other", sampled=[SimpleNamespace(group=one) for one in groups]
    )
    lab.evaluations.latest = (evaluation, lab.params)
    lab.guard.eval_finished(EvalFinished(4, "core/dataset", EvalReport({}, 0)))
