"""Steps of a small trainer that guards watch, in one process."""

from pathlib import Path

import pytest
import torch

from rlvr_core.api import (
    Completion,
    EngineTraits,
    Group,
    GroupsScored,
    GuardContext,
    Judged,
    Problem,
    RunError,
    RunStarted,
    StepFinished,
    StepObserver,
)
from rlvr_core.api.guards import StepView
from rlvr_core.config.model import ReferenceSection, RunConfig, TrainSection
from rlvr_core.guards.observer import StepObservers
from rlvr_core.losses import GRPO
from rlvr_core.step.objective import LossTerm
from rlvr_core.step.reference import SeparateModel
from tests.support.train.small import small_model, small_trainer


class Sampling:
    """An engine that draws by seeds, and cannot read its weights back."""

    traits = EngineTraits()


class Counting:
    """A sampler whose state is a number."""

    def __init__(self, drawn=0):
        self.drawn = drawn

    def state_dict(self):
        return {"drawn": self.drawn}


def sample(model, n_groups=6, n=6, length=7, *, seed=0, version=0):
    """Groups sampled token by token from the model, with the log-probs at temperature 1."""
    generator = torch.Generator().manual_seed(seed)
    rows = [(3, 4 + place, 5) for place in range(n_groups) for _ in range(n)]
    ids_RL, logps = torch.tensor(rows), []
    for _ in range(length):
        with torch.no_grad():
            logp_RV = model(ids_RL).logits[:, -1].double().log_softmax(-1)
        token_R1 = torch.multinomial(logp_RV.exp(), 1, generator=generator)
        logps.append(logp_RV.gather(1, token_R1))
        ids_RL = torch.cat([ids_RL, token_R1], 1)
    logp_RT = torch.cat(logps, 1)
    groups = []
    for place in range(n_groups):
        members = []
        for number in range(n):
            row, cut = place * n + number, length - number % 3
            completion = Completion(
                rows[row],
                tuple(ids_RL[row, 3 : 3 + cut].tolist()),
                tuple(logp_RT[row, :cut].tolist()),
                (True,) * cut,
                "x",
                "stop",
                version,
            )
            reward = float((number + place) % 3 == 0)
            members.append(Judged(completion, {}, reward, reward > 0))
        problem = Problem(f"p{place}", "?", "core/exact", {}, "toy")
        groups.append(Group(problem, tuple(members), version))
    return groups


def trainer_with(loss=None, *, reference=None, estimator=None, model=None, **train):
    """A trainer of a model whose distributions are not flat."""
    model = model or small_model(num_hidden_layers=2)
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    section = TrainSection(**{"steps": 100, "lr": 1e-2, "warmup_steps": 0} | train)
    if reference == "frozen":
        frozen = small_model(num_hidden_layers=2).requires_grad_(False)
        frozen.load_state_dict(model.state_dict())
        reference = SeparateModel(frozen, model, ReferenceSection())
    term = LossTerm("grpo", loss or GRPO(GRPO.Config()))
    return small_trainer(model, [term], section, reference=reference, estimator=estimator)


def config_of(trainer, **more):
    """The configuration that such a trainer is of."""
    losses = [
        {"use": term.name, "with": term.loss.options.model_dump(), "weight": term.weight}
        for term in trainer.objective.terms
    ]
    return RunConfig.model_validate(
        {
            "model": {"path": "m"},
            "data": {"sources": ["a"]},
            "loss": losses,
            "train": trainer.train.model_dump(exclude={"optimizer", "lr_schedule"}),
            **more,
        }
    )


class Watched:
    """A trainer that a guard watches, and others beside it.

    Attributes:
        said: What the guard told the user.
    """

    def __init__(self, *guards, trainer=None, engine=None, sampler=None, tokenizer=None, **config):
        self.trainer = trainer or trainer_with()
        self.guard, self.guards, self.said = guards[0], guards, []
        view = StepView()
        self.context = GuardContext(
            config=config_of(self.trainer, **config),
            trainer=self.trainer,
            engine=engine or Sampling(),
            sampler=sampler or Counting(),
            judge=None,
            problems={},
            tokenizer=tokenizer,
            ranks=self.trainer.ranks,
            room=100,
            longest_prompt=3,
            say=self.said.append,
            phase=self.said.append,
            record=self.said.append,
            view=view,
        )
        for guard in guards:
            guard.bind(self.context)
        observers = [guard for guard in guards if isinstance(guard, StepObserver)]
        self.trainer.observer = StepObservers(observers, view)
        self.step = self.version = 0

    def start(self, *, resumed=False):
        event = RunStarted(Path(), {}, self.step, resumed)
        for guard in self.guards:
            guard.run_started(event)
        return self

    def steps(self, n=4, groups=None, **more):
        """The guards' numbers of some steps, each sampled from the policy of its time."""
        numbers = []
        for _ in range(n):
            some = groups or sample(
                self.trainer.model, seed=self.step, version=self.version, **more
            )
            for guard in self.guards:
                guard.on_groups(GroupsScored(self.step, self.version, tuple(some)))
            report = self.trainer.update(some, self.step, self.version)
            self.version += report.applied
            numbers.append({})
            for guard in self.guards:
                guard.on_step(StepFinished(self.step, self.version, report.metrics))
                numbers[-1] |= guard.report()
            self.step += 1
        return numbers


def made(kind):
    """A guard with its default options."""
    return kind(kind.Config())


def fault(run, *words, n=4):
    """The error of a run that a guard must stop within n steps; it has these words."""
    with pytest.raises(RunError) as caught:
        run.start().steps(n)
    text = str(caught.value)
    leaf = run.guard.name.rpartition("/")[2]
    assert f"guard {leaf}:" in text
    assert f"rlvr docs guards#{leaf}" in text
    assert f"guards: [{{use: {run.guard.name}, off: true}}]" in text
    for word in words:
        assert word in text
    return text


def put_back(trainer, parameters):
    """Undo each update of these parameters."""
    before = [parameter.detach().clone() for parameter in parameters]

    def restore(*_):
        with torch.no_grad():
            for parameter, old in zip(parameters, before, strict=True):
                parameter.copy_(old)

    trainer.optimizer.inner.register_step_post_hook(restore)
