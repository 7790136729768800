"""What losses, advantage estimators, optimizers, schedules, trackers and engines promise.

Each check uses a tiny input and says what to mend. Tensor shapes: B rows, T completion positions,
N completions of a step.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    AdvantageOutput,
    AdvantageTraits,
    Completion,
    EngineContext,
    EngineTraits,
    GenerationRequest,
    Group,
    Judged,
    JudgedStep,
    LossBatch,
    LossOutput,
    LossTraits,
    MachineError,
    Normalizer,
    OptimizerTraits,
    Problem,
    SamplingParams,
    TrackedRun,
    TrainedParameter,
    Verdict,
    config_class,
    traits_of,
)
from rlvr_core.builtin.conformance.checks import Check, config_survives, demand, options_explained

if TYPE_CHECKING:
    import torch

_TRAITS: Mapping[str, type[Any]] = {
    "loss": LossTraits,
    "advantage": AdvantageTraits,
    "optimizer": OptimizerTraits,
    "engine": EngineTraits,
}


@dataclass(frozen=True, slots=True)
class ComponentSubject:
    """A component under test.

    Attributes:
        kind: Its kind, as ``loss``.
        component: Its class.
        folder: An empty folder.
        config: The options to construct it with.
        context: Makes the context that an engine is started with.
    """

    kind: str
    component: type[Any]
    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    context: Callable[[], EngineContext] | None = None

    def build(self) -> Any:
        """Make a new instance, or skip the test where a package is missing."""
        import pytest

        try:
            return self.component(config_class(self.component)(**self.config))
        except MachineError as error:
            pytest.skip(str(error))


def states_traits(subject: ComponentSubject) -> None:
    """Check that the traits are an instance of the traits class of the kind."""
    if subject.kind in _TRAITS:
        traits_of(subject.build(), _TRAITS[subject.kind])


# -- losses --------------------------------------------------------------------------------------


def _loss_batch(traits: LossTraits) -> LossBatch:
    """A batch of 4 rows, 6 positions and 12 loss tokens, in which masked positions hold NaN."""
    import torch

    generator = torch.Generator().manual_seed(3)

    def logp(*shape: int) -> torch.Tensor:
        return -torch.rand(*shape, generator=generator) - 0.1

    mask_BT = torch.tensor(
        [[1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0], [0, 0, 0, 1, 0, 0]]
    ).bool()
    logp_BT, advantage_B = logp(4, 6), torch.tensor([1.0, -1.0, 0.5, -0.25])

    def near(scale: float) -> torch.Tensor:
        return (logp_BT + scale * (logp(4, 6) + 0.6)).masked_fill(~mask_BT, math.nan)

    top = traits.teacher.top_k if traits.teacher is not None else 2
    return LossBatch(
        logp_BT=logp_BT.requires_grad_(),
        old_logp_BT=near(0.02),
        behaviour_logp_BT=near(0.02),
        ref_logp_BT=near(0.1),
        mask_BT=mask_BT,
        advantage_B=advantage_B,
        entropy_BT=(logp(4, 6) + 2).requires_grad_(),
        entropy_mask_BT=mask_BT if traits.top_entropy < 1 else None,
        teacher_logp_BTK=logp(4, 6, top).log_softmax(-1) - 0.1,
        student_logp_BTK=(logp(4, 6, top).log_softmax(-1) - 0.2).requires_grad_(),
        entropy_bonus=None if traits.entropy is None else 0.01,
        group_B=torch.tensor([0, 0, 1, 1]),
    )


_ALL_ROWS = Normalizer(rows=4, tokens=12, max_completion_tokens=6)


def _rows(batch: LossBatch, places: Sequence[int]) -> LossBatch:
    """The batch with these rows only."""
    import torch

    cut = {
        name: getattr(batch, name)[list(places)]
        for name in batch.__dataclass_fields__
        if isinstance(getattr(batch, name), torch.Tensor)
    }
    return replace(batch, **cut)


def _computed(subject: ComponentSubject, batch: LossBatch, normalizer: Normalizer) -> LossOutput:
    output: LossOutput = subject.build()(batch, normalizer)
    demand(isinstance(output, LossOutput), f"return a LossOutput, not {type(output).__name__}")
    demand(tuple(output.loss.shape) == (), f"the loss has shape {tuple(output.loss.shape)}, not ()")
    demand(
        bool(output.loss.isfinite()),
        f"the loss is {output.loss.item()}: masked positions may hold anything, NaN included; "
        "use torch.where with mask_BT",
    )
    return output


def loss_has_gradient(subject: ComponentSubject) -> None:
    """Check that the loss is a finite scalar with a finite gradient, 0 at masked positions."""
    import torch

    batch = _loss_batch(subject.build().traits)
    leaves = [batch.logp_BT, batch.entropy_BT, batch.student_logp_BTK]
    grads = torch.autograd.grad(
        _computed(subject, batch, _ALL_ROWS).loss,
        [leaf for leaf in leaves if leaf is not None],
        allow_unused=True,
    )
    known = [grad for grad in grads if grad is not None]
    demand(
        any(bool((grad != 0).any()) for grad in known),
        "no gradient reaches logp_BT or student_logp_BTK: nothing would be trained",
    )
    for grad in known:
        demand(bool(grad.isfinite().all()), "a gradient is not finite")
        outside = grad[~batch.mask_BT]
        demand(bool((outside == 0).all()), "a gradient reaches positions outside mask_BT")


def loss_adds_up(subject: ComponentSubject) -> None:
    """Check that the loss of a batch is the sum of the losses of its parts (T10)."""
    traits = subject.build().traits
    whole = _computed(subject, _loss_batch(traits), _ALL_ROWS).loss.item()
    parts = [
        _computed(subject, _rows(_loss_batch(traits), places), _ALL_ROWS).loss.item()
        for places in ([0, 1], [2, 3])
    ]
    demand(
        math.isclose(whole, sum(parts), rel_tol=1e-4, abs_tol=1e-6),
        f"one micro-batch has loss {whole:.6f}, the same rows in two have {sum(parts):.6f}: "
        "divide by the counts of the Normalizer, not by those of the batch",
    )


def loss_scales_with_ranks(subject: ComponentSubject) -> None:
    """Check that the loss is multiplied by the number of processes (T11)."""
    traits = subject.build().traits
    one = _computed(subject, _loss_batch(traits), _ALL_ROWS).loss.item()
    two = _computed(subject, _loss_batch(traits), replace(_ALL_ROWS, world_size=2)).loss.item()
    demand(
        math.isclose(two, 2 * one, rel_tol=1e-4, abs_tol=1e-6),
        f"with world_size 2 the loss is {two:.6f}, not twice {one:.6f}: gradients are averaged "
        "over processes, so multiply by normalizer.world_size",
    )


def loss_is_pure(subject: ComponentSubject) -> None:
    """Check that a second call gives the same, and that the batch is left as it was."""
    import torch

    batch = _loss_batch(subject.build().traits)
    names = [n for n in batch.__dataclass_fields__ if isinstance(getattr(batch, n), torch.Tensor)]
    before = {name: getattr(batch, name).detach().clone() for name in names}
    loss = subject.build()
    first, second = (loss(batch, _ALL_ROWS).loss.item() for _ in range(2))
    demand(first == second, f"two calls on one batch give {first} and {second}: keep no state")
    for name in names:
        same = torch.equal(getattr(batch, name).nan_to_num(7.0), before[name].nan_to_num(7.0))
        demand(same, f"{name} is changed in place: copy it first")


# -- advantages ----------------------------------------------------------------------------------


def judged_step(traits: AdvantageTraits, order: Sequence[int] = (0, 1)) -> JudgedStep:
    """Two groups of four completions, one of which has no reward; ``order`` is of the groups."""
    import numpy as np

    rewards = ((1.0, 0.0, 0.25, 1.0), (0.0, math.nan, 1.0, 0.5))
    groups = []
    for place in order:
        problem = Problem(f"p{place}", "?", "v", {}, "conformance")
        members = []
        for index, reward in enumerate(rewards[place]):
            n = 2 + index
            completion = Completion((1,), (5,) * n, (-1.0,) * n, (True,) * n, "x" * n, "stop")
            known = None if math.isnan(reward) else reward
            status: Any = "ok" if known is not None else "unscorable"
            verdict = Verdict(known, status, passed=None if known is None else known == 1.0)
            members.append(Judged(completion, {"v": verdict}, known, verdict.passed))
        groups.append(Group(problem, tuple(members), 0))
    reward_N = np.array([reward for place in order for reward in rewards[place]])
    lengths = [len(m.completion.token_ids) for group in groups for m in group.members]
    return JudgedStep(
        groups=tuple(groups),
        group_N=np.repeat(np.arange(2), 4),
        reward_N=reward_N,
        score_NK=reward_N[:, None].copy(),
        weights=(1.0,),
        kl_N=tuple(np.full(n, 0.1) for n in lengths) if traits.needs_reference_kl else None,
    )


def _advantages(subject: ComponentSubject, order: Sequence[int] = (0, 1)) -> list[list[float]]:
    """Advantages of the scored completions, one list of numbers each."""
    estimator = subject.build()
    traits = traits_of(estimator, AdvantageTraits)
    step = judged_step(traits, order)
    output = estimator(step)
    what = f"return an AdvantageOutput, not {type(output).__name__}"
    demand(isinstance(output, AdvantageOutput), what)
    given = list(output.advantages)
    demand(len(given) == 8, f"{len(given)} advantages for 8 completions: give one each, in order")
    scored = []
    for value, member in zip(given, step.members, strict=True):
        numbers = [float(x) for x in value] if traits.per_token else [float(value)]
        n = len(member.completion.token_ids)
        if traits.per_token:
            demand(len(numbers) == n, f"{len(numbers)} advantages for a completion of {n} tokens")
        if member.reward is None:
            continue
        what = f"the advantage of reward {member.reward} is {numbers}: leave NaN rewards out"
        demand(all(map(math.isfinite, numbers)), what)
        scored.append(numbers)
    return scored


def advantages_fit(subject: ComponentSubject) -> None:
    """Check number, shape and finiteness, beside a completion without a reward."""
    numbers = [x for row in _advantages(subject) for x in row]
    demand(any(x != 0 for x in numbers), "every advantage is 0, though rewards differ")


def advantages_ignore_order(subject: ComponentSubject) -> None:
    """Check that advantages do not depend on the order of the groups."""
    forward, backward = _advantages(subject), _advantages(subject, (1, 0))
    for a, b in zip(forward, [*backward[3:], *backward[:3]], strict=True):
        close = all(math.isclose(x, y, abs_tol=1e-9) for x, y in zip(a, b, strict=True))
        demand(close, f"a completion has advantage {a}, and {b} when the groups are swapped")


def advantages_are_pure(subject: ComponentSubject) -> None:
    """Check that the step is left as it was and a second call gives the same."""
    import numpy as np

    estimator = subject.build()
    step = judged_step(traits_of(estimator, AdvantageTraits))
    before = copy.deepcopy(step)
    first, second = (list(map(str, estimator(step).advantages)) for _ in range(2))
    demand(first == second, "two calls on one step differ: draw no random numbers, keep no state")
    for name in ("group_N", "reward_N", "score_NK"):
        now, then = getattr(step, name), getattr(before, name)
        same = np.array_equal(now, then, equal_nan=name != "group_N")
        demand(same, f"step.{name} is changed in place: copy it first")


# -- optimizers and schedules --------------------------------------------------------------------


def _optimized(subject: ComponentSubject, steps: int, saved: Any = None) -> tuple[Any, Any]:
    """Weights after updates towards 0, and the optimizer; ``saved`` weights and state first."""
    import torch

    generator = torch.Generator().manual_seed(5)
    tensors = [torch.nn.Parameter(torch.randn(8, 8, generator=generator))]
    tensors.append(torch.nn.Parameter(torch.randn(8, generator=generator)))
    parameters = [TrainedParameter(f"w{t.ndim}", t, hidden_matrix=t.ndim == 2) for t in tensors]
    optimizer = subject.build().build(parameters, 0.01)
    if saved is not None:
        with torch.no_grad():
            for tensor, value in zip(tensors, saved[0], strict=True):
                tensor.copy_(value)
        for tensor, state in zip(tensors, saved[1], strict=True):
            optimizer.state[tensor].update(copy.deepcopy(state))
    for _ in range(steps):
        for tensor in tensors:
            tensor.grad = tensor.detach().clone()
        optimizer.step()
    return [t.detach().clone() for t in tensors], [dict(optimizer.state[t]) for t in tensors]


def optimizer_descends(subject: ComponentSubject) -> None:
    """Check that updates go against the gradient, in every parameter."""
    start, end = _optimized(subject, 0)[0], _optimized(subject, 3)[0]
    for before, after in zip(start, end, strict=True):
        demand(bool(after.isfinite().all()), "an update made a weight infinite or NaN")
        went = (before * (after - before)).sum().item()
        demand(went < 0, f"a parameter of shape {tuple(before.shape)} does not follow -gradient")


def optimizer_resumes(subject: ComponentSubject) -> None:
    """Check that ``state[parameter]`` is all an optimizer needs to continue exactly."""
    import torch

    whole = _optimized(subject, 4)[0]
    weights, state = _optimized(subject, 2)
    for entries in state:
        for name, value in entries.items():
            kept = isinstance(value, torch.Tensor | int)
            demand(kept, f"state '{name}' is a {type(value).__name__}: keep tensors and integers")
    resumed = _optimized(subject, 2, (weights, state))[0]
    for one, other in zip(whole, resumed, strict=True):
        demand(
            torch.equal(one, other),
            "4 updates differ from 2, a resume, and 2: keep everything in state[parameter]",
        )


def schedule_is_a_share(subject: ComponentSubject) -> None:
    """Check that a schedule begins at 1 and stays finite and within [0, 1]."""
    schedule = subject.build()
    shares = [float(schedule(step / 20)) for step in range(21)]
    demand(math.isclose(shares[0], 1.0), f"at progress 0 the share is {shares[0]}: begin at 1")
    inside = all(0 <= share <= 1 for share in shares)
    demand(inside, f"shares of the peak are outside [0, 1]: {shares}")
    again = [float(schedule(step / 20)) for step in reversed(range(21))]
    demand(again[::-1] == shares, "a second call differs: a schedule is a function of progress")


# -- trackers ------------------------------------------------------------------------------------


def tracker_takes_a_run(subject: ComponentSubject) -> None:
    """Check that a tracker takes any number, is closed, and goes on after a resume."""
    run = TrackedRun(subject.folder, subject.folder.name, {"run": {"name": "conformance"}})
    numbers = {"loss": 0.5, "reward/mean": math.nan, "grad_norm": math.inf, "a/b c": -math.inf}
    for first in (0, 1):
        tracker = subject.build()
        tracker.start(run, first)
        for step in (first, first + 1):
            tracker.metrics(step, numbers)
        tracker.metrics(first + 2, {"reward/mean": 1.0})  # other names than before
        tracker.close()


# -- engines -------------------------------------------------------------------------------------


class _Weights:
    """The weights of a module, as a trainer gives them to an engine; see ``WeightSource``."""

    sharded = False

    def __init__(self, module: Any) -> None:
        self.module = module

    def tensors(self) -> Any:
        """See ``WeightSource``."""
        return ((name, tensor.detach()) for name, tensor in self.module.named_parameters())

    def adapter(self) -> Any:
        """There is none."""
        raise ValueError("no adapter is trained")


def engine_answers(subject: ComponentSubject) -> None:
    """Check answers, their order, lengths, log-probs and versions, across a weight sync."""
    assert subject.context is not None, "an engine is tested with context=..."
    context = subject.context()
    engine = subject.build()
    engine.start(context)
    try:
        for version in (0, 3):
            if version:
                engine.load_weights(version, _Weights(context.model))
            _answers(engine, version)
            engine.sleep()
            engine.wake()
        engine.drain(60)  # with nothing to do
    finally:
        engine.close()
    engine.close()


def _answers(engine: Any, version: int) -> None:
    params = SamplingParams(max_tokens=5)
    requests = [GenerationRequest(f"r{i}", (10 + i, 20, 30), params, (1, 2)) for i in range(2)]
    futures = [engine.submit(request) for request in requests]
    engine.drain(300)
    for request, future in zip(requests, futures, strict=True):
        demand(future.done(), f"{request.id}: drain returned before its future was resolved")
        generations = future.result(0)
        n = len(generations)
        demand(n == 2, f"{request.id}: {n} generations for 2 seeds")
        for generation in generations:
            length, logprobs = len(generation.token_ids), generation.logprobs
            demand(0 < length <= 5, f"{request.id}: {length} tokens, where 1 to 5 were wanted")
            demand(len(logprobs) == length, f"{request.id}: {len(logprobs)} log-probs for {length}")
            fine = all(math.isfinite(x) and x <= 1e-4 for x in logprobs)
            demand(fine, f"{request.id}: log-probs are not finite and at most 0: {logprobs}")
            reason = generation.finish_reason
            demand(reason in ("stop", "length"), f"{request.id}: it finished by '{reason}'")
            got = generation.version
            demand(got == version, f"{request.id}: labelled with version {got}, not {version}")


_COMMON = (
    Check("config", "its config survives writing and reading; typos are refused", config_survives),
    Check("options", "every option is explained", options_explained),
    Check("traits", "its traits are those of its kind", states_traits),
)

COMPONENT_CHECKS: Mapping[str, tuple[Check, ...]] = {
    "loss": (
        *_COMMON,
        Check("gradient", "a finite scalar, with a gradient inside mask_BT", loss_has_gradient),
        Check("adds-up", "micro-batches add up to the loss of the step", loss_adds_up),
        Check("ranks", "it is multiplied by the number of processes", loss_scales_with_ranks),
        Check("pure", "it keeps no state and changes no input", loss_is_pure),
    ),
    "advantage": (
        *_COMMON,
        Check("fit", "one finite advantage per completion or token", advantages_fit),
        Check("order", "the order of groups changes nothing", advantages_ignore_order),
        Check("pure", "it keeps no state and changes no input", advantages_are_pure),
    ),
    "optimizer": (
        *_COMMON,
        Check("descends", "updates go against the gradient", optimizer_descends),
        Check("resumes", "state[parameter] is all it needs to continue", optimizer_resumes),
    ),
    "schedule": (
        *_COMMON,
        Check("share", "a share of the peak from 1 on, a pure function", schedule_is_a_share),
    ),
    "tracker": (
        *_COMMON,
        Check("run", "it takes any numbers, closes, and continues", tracker_takes_a_run),
    ),
    "engine": (
        *_COMMON,
        Check("answers", "a generation per seed, labelled with its version", engine_answers),
    ),
}
"""Every promise of a component, by kind, in the order they are checked."""


def component_conformance(
    kind: str,
    component: type[Any],
    *,
    config: Mapping[str, Any] | None = None,
    context: Callable[[], EngineContext] | None = None,
) -> Callable[..., None]:
    """A test of everything a component promises, one pytest case for each promise.

    Example:
        ``test_lion = component_conformance("optimizer", Lion, config={"beta1": 0.9})``

    Args:
        kind: One of ``COMPONENT_CHECKS``.
        component: Its class.
        config: Options to construct it with.
        context: For an engine: makes what it is started with, with a tiny model.

    Returns:
        A test function; give it a name that begins with ``test``.
    """
    import pytest

    @pytest.mark.parametrize("check", COMPONENT_CHECKS[kind], ids=lambda check: check.id)
    def test(check: Check, tmp_path: Path) -> None:
        check.run(ComponentSubject(kind, component, tmp_path, config or {}, context))

    return test
