"""Every registered loss, estimator, optimizer, schedule, tracker and engine keeps its promises."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace

import numpy as np
import pytest
import torch

from rlvr_core.api import (
    AdvantageOutput,
    AdvantageTraits,
    EngineContext,
    EngineTraits,
    Example,
    Generation,
    LossOutput,
    LossTraits,
    NoConfig,
)
from rlvr_core.host.host import load_host
from rlvr_core.testing import CHECKS, Subject, Unchecked, component_conformance
from rlvr_core.testing.random_model import save_random_model

OPTIONS = {
    "core/gkd": {"teacher": "somewhere"},
    "core/opsd": {"prompt": "{prompt}"},
    "core/scripted": {"answers": {"": ["two words", "one"]}},
    "core/pass_at_k": {"k": 2},
    "core/wandb": {"mode": "offline"},
}
KINDS = {"loss", "advantage", "optimizer", "schedule", "tracker", "engine"}
# they have tests of their own
ELSEWHERE = {"core/vllm", "core/vllm-server", "core/openai", "core/ray"}


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = save_random_model(tmp_path_factory.mktemp("model"))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    return lambda: EngineContext(str(folder), model, tokenizer, torch.float32, 64, 7)


def registered(kind):
    entries = load_host().registry.entries
    return sorted(name for k, name in entries if k == kind and name.startswith("core/"))


CASES = [
    pytest.param(kind, name, check, id=f"{kind}-{name.partition('/')[2]}-{check.id}")
    for kind, checks in CHECKS.items()
    if kind in KINDS
    for name in registered(kind)
    if name not in ELSEWHERE
    for check in checks
]


@pytest.mark.parametrize(("kind", "name", "check"), CASES)
def test_a_built_in_keeps_its_promises(kind, name, check, tmp_path, context, monkeypatch):
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)  # where MLflow puts its database
    component = load_host().registry.entries[kind, name].load()
    example = Example(OPTIONS.get(name, {}), context=context)
    try:
        check.run(Subject(kind, component, example, tmp_path))
    except Unchecked as reason:
        pytest.skip(str(reason))


def plain(batch, normalizer):
    """REINFORCE, as a good loss computes it: the mean over all loss tokens of the step."""
    loss_BT = torch.where(batch.mask_BT, -batch.logp_BT * batch.advantage_B[:, None], 0.0)
    return loss_BT.sum() * normalizer.world_size / normalizer.tokens


class Base:
    Config = NoConfig

    def __init__(self, config):
        self.calls = 0


class Loss(Base):
    traits = LossTraits(advantage="group")
    value = staticmethod(plain)

    def __call__(self, batch, normalizer):
        self.calls += 1
        return LossOutput(self.value(batch, normalizer), {}, {})


class Vector(Loss):
    value = staticmethod(lambda batch, n: plain(batch, n)[None])


class Unmasked(Loss):
    value = staticmethod(lambda batch, n: (batch.logp_BT * n.world_size).sum() / n.tokens)


class Detached(Loss):
    value = staticmethod(lambda batch, n: plain(batch, n).detach() + 0.0 * batch.logp_BT.sum())


class OwnCount(Loss):
    def value(self, batch, normalizer):
        return plain(batch, replace(normalizer, tokens=int(batch.mask_BT.sum())))


class OneRank(Loss):
    def value(self, batch, normalizer):
        return plain(batch, replace(normalizer, world_size=1))


class Counting(Loss):
    def value(self, batch, normalizer):
        return plain(batch, normalizer) * self.calls


class InPlace(Loss):
    def value(self, batch, normalizer):
        loss = plain(batch, normalizer)
        batch.old_logp_BT.zero_()
        return loss


class Center(Base):
    """Rewards less the mean of their group."""

    traits = AdvantageTraits()

    def value(self, step):
        return np.nan_to_num(
            [
                member.reward - np.mean([m.reward for m in group.members if m.reward is not None])
                if member.reward is not None
                else 0.0
                for group in step.groups
                for member in group.members
            ]
        )

    def __call__(self, step):
        self.calls += 1
        return AdvantageOutput(self.value(step))


class Short(Center):
    def value(self, step):
        return super().value(step)[:-1]


class Infected(Center):
    """The mean of a group with a NaN reward is NaN."""

    def value(self, step):
        return [
            float(r - step.reward_N[step.group_N == g].mean())
            for r, g in zip(step.reward_N, step.group_N, strict=True)
        ]


class ByPlace(Center):
    def value(self, step):
        return super().value(step) * (1 + step.group_N)


class Overwriting(Center):
    def value(self, step):
        step.reward_N[:] = 0.0
        return super().value(step)


class SGD(Base):
    scale = 1.0

    def build(self, parameters, lr):
        return torch.optim.SGD([p.tensor for p in parameters], lr * self.scale, maximize=False)


class Ascent(SGD):
    def build(self, parameters, lr):
        return torch.optim.SGD([p.tensor for p in parameters], lr, maximize=True)


class Forgetful(SGD):
    """Its steps shrink by a count that is in no state."""

    def build(self, parameters, lr):
        optimizer = super().build(parameters, lr)
        optimizer.register_step_pre_hook(
            lambda opt, *_: [g.update(lr=g["lr"] / 2) for g in opt.param_groups] and None
        )
        return optimizer


class Falling(Base):
    def __call__(self, progress):
        return 1 - progress


class Rising(Base):
    def __call__(self, progress):
        return progress


class Below(Base):
    def __call__(self, progress):
        return 1 - 2 * progress


class Log(Base):
    def start(self, run, step):
        self.lines = []

    def metrics(self, step, values):
        self.lines.append(dict(values))

    def close(self):
        pass


class Whole(Log):
    """It takes whole numbers alone: an infinite one raises."""

    def metrics(self, step, values):
        self.lines.append({name: round(value) for name, value in values.items()})


GOOD = [("loss", Loss), ("advantage", Center), ("optimizer", SGD), ("schedule", Falling)]
GOOD += [("tracker", Log)]
BAD = [
    ("loss", Vector, "gradient", "shape (1,), not ()"),
    ("loss", Unmasked, "gradient", "outside mask_BT"),
    ("loss", Detached, "gradient", "nothing would be trained"),
    ("loss", OwnCount, "adds-up", "counts of the Normalizer"),
    ("loss", OneRank, "ranks", "multiply by normalizer.world_size"),
    ("loss", Counting, "pure", "keep no state"),
    ("loss", InPlace, "pure", "old_logp_BT is changed in place"),
    ("advantage", Short, "fit", "7 advantages for 8 completions"),
    ("advantage", Infected, "fit", "leave NaN rewards out"),
    ("advantage", ByPlace, "order", "when the groups are swapped"),
    ("advantage", Overwriting, "pure", "step.reward_N is changed in place"),
    ("optimizer", Ascent, "descends", "does not follow -gradient"),
    ("optimizer", Forgetful, "resumes", "keep everything in state[parameter]"),
    ("schedule", Rising, "share", "begin at 1"),
    ("schedule", Below, "share", "outside [0, 1]"),
    ("tracker", Whole, "run", "cannot convert float"),
]


def outcome(check, subject):
    try:
        check.run(subject)
    except (AssertionError, ValueError, OverflowError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("kind", "component"), GOOD)
def test_a_good_one_passes_every_check(kind, component, tmp_path):
    subject = Subject(kind, component, folder=tmp_path)
    assert {check.id: outcome(check, subject) for check in CHECKS[kind]} == dict.fromkeys(
        [check.id for check in CHECKS[kind]], ""
    )


@pytest.mark.parametrize(("kind", "component", "failed", "message"), BAD)
def test_a_bad_one_fails_its_check_which_says_what_to_mend(
    kind, component, failed, message, tmp_path
):
    (check,) = [check for check in CHECKS[kind] if check.id == failed]
    assert message in outcome(check, Subject(kind, component, folder=tmp_path))


class Mute(Base):
    """An engine that answers at once, and labels nothing."""

    traits = EngineTraits()
    version, n, tokens = 0, 2, 3

    def start(self, context):
        pass

    def submit(self, request):
        future = Future()
        one = Generation((7,) * self.tokens, (-1.0,) * self.tokens, "aaa", "stop", self.version)
        future.set_result((one,) * self.n)
        return future

    def load_weights(self, version, source):
        pass

    drain = sleep = wake = close = lambda self, *_: None


class Labelled(Mute):
    def load_weights(self, version, source):
        self.version = version


class Single(Labelled):
    n = 1


class Endless(Labelled):
    tokens = 6


@pytest.mark.parametrize(
    ("component", "message"),
    [
        (Labelled, ""),
        (Mute, "labelled with version 0, not 3"),
        (Single, "1 generations for 2 seeds"),
        (Endless, "6 tokens, where 1 to 5 were wanted"),
    ],
)
def test_engines_are_held_to_seeds_lengths_and_versions(component, message, tmp_path, context):
    (check,) = [check for check in CHECKS["engine"] if check.id == "answers"]
    said = outcome(check, Subject("engine", component, Example(context=context), tmp_path))
    assert message in said
    assert bool(said) == bool(message)


test_it_is_a_test_with_a_case_for_each_promise = component_conformance("schedule", Falling)
