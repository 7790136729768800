"""Turns a sampler's draws into judged groups: draw, render, generate, verify, keep or drop.

Generation and verification overlap: a group goes to the verifier pool the moment its last
completion is there. What comes out is in draw order, so that nothing downstream depends on timing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any

from rlvr_core.api import (
    BackgroundEngine,
    Completion,
    Draw,
    Drop,
    Engine,
    Extend,
    Generation,
    GenerationRequest,
    Group,
    Judged,
    Outcome,
    Problem,
    Prompt,
    RunError,
    Sampler,
    SamplerTraits,
    SamplingParams,
    Verdict,
    traits_of,
)
from rlvr_core.api.judging import replacements
from rlvr_core.api.progress import progress
from rlvr_core.api.rollouts import Rollouts, Sampled
from rlvr_core.engines.sampling import WORLD, completion_seed
from rlvr_core.record.metrics import misuse
from rlvr_core.verify.judge import Judge

Verdicts = dict[str, Verdict]
Judgement = Future[list[Verdicts]]


@dataclass(frozen=True, slots=True)
class Answered:
    """A group whose completions are judged, without its rewards.

    Attributes:
        draw: The order it answers.
        prompt: The prompt.
        completions: Its completions.
        verdicts: On each of them, by verifier.
    """

    draw: Draw
    prompt: Prompt
    completions: list[Completion]
    verdicts: list[Verdicts] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Generator:
    """Turns draws into judged groups; training and evaluation share it, so prompts are the same.

    Attributes:
        engine: What generates.
        judge: What verifies and rewards.
        prompt: From a problem to what the engine is given (the one renderer).
        seed: The run's seed.
        deadline: Seconds any one wait may take.
        say_waiting: Called with the label of what is being waited for.
    """

    engine: Engine
    judge: Judge
    prompt: Callable[[Problem], Prompt]
    seed: int
    deadline: float
    say_waiting: Callable[[str], None]

    def generate(
        self,
        draws: Sequence[Draw],
        params: SamplingParams,
        *,
        version: int,
        step: int,
        each: Callable[[Answered], None] | None = None,
    ) -> list[Sampled]:
        """Judged groups of these draws, in their order.

        Args:
            draws: What to sample.
            params: How; a problem's own ``stop`` and ``max_tokens`` narrow it.
            version: The policy version that samples, read before generation begins.
            step: For the reward's schedule.
            each: Called with each group as soon as it is judged, from another thread and in any
                order; what it raises is raised here.

        Raises:
            RunError: If the engine fails, or a wait passes the deadline.
        """
        begun = [self.begin(draw, params, version=version, each=each) for draw in draws]
        total = sum(draw.n for draw in draws)
        self.say_waiting(f"generation of {total} completions")
        with progress(
            "completions", lambda: sum(len(group.completions) for group, _ in begun), total
        ):
            self.engine.drain(self.deadline)
        self.say_waiting(f"verdicts on {len(draws)} groups")
        with progress("groups", lambda: sum(judged.done() for _, judged in begun), len(draws)):
            verdicts = [self._await(judged, group.draw) for group, judged in begun]
        return [
            self.sampled(replace(group, verdicts=given), version, step)
            for (group, _), given in zip(begun, verdicts, strict=True)
        ]

    def begin(
        self,
        draw: Draw,
        params: SamplingParams,
        *,
        version: int,
        each: Callable[[Answered], None] | None = None,
    ) -> tuple[Answered, Judgement]:
        """Submit one draw; return its group, filled as completions arrive, and future verdicts.

        The verdicts are cancelled if the engine aborts the request. See ``generate`` for the
        arguments.
        """
        prompt = self.prompt(draw.problem)
        answered, judged = Answered(draw, prompt, []), Judgement()
        future: Any = self.engine.submit(self._request(draw, prompt, params, version))
        if not isinstance(future, Future):
            raise misuse(self.engine, f"gave {future!r:.80} for a request", "return a Future")
        future.add_done_callback(self._then_judge(answered, judged, each))
        return answered, judged

    def launch(self) -> None:
        """Start the generation of what was begun, on an engine that works in the background."""
        self._background.begin()

    def abort(self) -> None:
        """Cancel what is not finished, on an engine that works in the background."""
        self._background.abort()

    @property
    def _background(self) -> BackgroundEngine:
        assert isinstance(self.engine, BackgroundEngine), type(self.engine).__name__
        return self.engine

    def _request(
        self, draw: Draw, prompt: Prompt, params: SamplingParams, version: int
    ) -> GenerationRequest:
        problem = draw.problem
        cap = min(params.max_tokens, problem.max_tokens or params.max_tokens)
        stop = tuple(dict.fromkeys((*params.stop, *problem.stop)))
        more = f"+{draw.first}" if draw.first else ""
        return GenerationRequest(
            id=f"{problem.id}@{version}#{draw.index}{more}",
            prompt_ids=prompt.ids,
            turns=prompt.turns,
            params=SamplingParams(params.temperature, params.top_p, params.top_k, cap, stop),
            problem=problem,
            world_seed=completion_seed(self.seed, problem.id, version, draw.index, WORLD),
            seeds=tuple(
                completion_seed(self.seed, problem.id, version, draw.index, sample)
                for sample in range(draw.first, draw.first + draw.n)
            ),
        )

    def _then_judge(
        self,
        answered: Answered,
        judged: Judgement,
        each: Callable[[Answered], None] | None,
    ) -> Callable[[Future[tuple[Generation, ...]]], None]:
        def tell(verdicts: list[Verdicts]) -> None:
            if each is not None:
                each(replace(answered, verdicts=verdicts))

        def judge(done: Future[tuple[Generation, ...]]) -> None:
            if done.cancelled():
                judged.cancel()
                return
            try:
                given: Any = done.result()
                if what := _fault(given, answered.draw.n):
                    raise misuse(self.engine, what, "give a rlvr_core.api.Generation for each seed")
                answered.completions.extend(
                    _completion(answered.prompt.ids, generation) for generation in given
                )
                verdicts = self.judge.submit(answered.draw.problem, answered.completions)
                verdicts.add_done_callback(_pass_on(judged, tell))
            except BaseException as error:
                judged.set_exception(error)

        return judge

    def _await(self, verdicts: Judgement, draw: Draw) -> list[Verdicts]:
        try:
            return verdicts.result(self.deadline)
        except TimeoutError as error:
            raise RunError(
                f"verdicts on {draw.problem.id} did not come within {self.deadline:g} s",
                remedy="raise run.timeout, or lower verify.timeout",
            ) from error

    def sampled(self, answered: Answered, version: int, step: int) -> Sampled:
        """Return the group with its rewards, under the reward schedule of a step."""
        members = []
        for completion, verdict in zip(answered.completions, answered.verdicts, strict=True):
            reward, passed = self.judge.reward(completion, verdict, step)
            scored_in_parts = any(verdict_part.spans for verdict_part in verdict.values())
            spans = self.judge.plan.spans(completion, verdict, step) if scored_in_parts else ()
            members.append(Judged(completion, verdict, reward, passed, spans))
        group = Group(answered.draw.problem, tuple(members), version)
        return Sampled(answered.draw, answered.prompt.text, group)


def collect(
    generator: Generator,
    sampler: Sampler,
    params: SamplingParams,
    *,
    version: int,
    step: int,
    replayed: int = 0,
) -> Rollouts:
    """One step's groups: ``prompts_per_step`` of them, dropped ones replaced up to the cap.

    Args:
        generator: Makes judged groups.
        sampler: Says of what, and which are kept.
        params: How to sample.
        version: The policy version that samples.
        step: The step.
        replayed: Groups the step has from earlier ones, which it need not generate.
    """
    rollouts = Rollouts()
    wanted = max(0, sampler.prompts_per_step - replayed)
    while wanted > 0:
        draws = sampler.draw(wanted, step=step)
        if not draws:
            break
        decided = _decided(generator, sampler, draws, params, version=version, step=step)
        rollouts.kept += [sampled for sampled in decided if sampled.drop is None]
        rollouts.dropped += [sampled for sampled in decided if sampled.drop is not None]
        sampler.update([outcome_of(sampled) for sampled in decided])
        wanted = more_groups(sampler, len(rollouts.kept) + replayed, rollouts.drawn + replayed)
    return rollouts


def more_groups(sampler: Sampler, kept: int, drawn: int) -> int:
    """Return ``sampler.refill(kept, drawn)``, which its traits bound: so every step ends.

    Raises:
        PluginError: If it asks for more than a step lacks, or than its traits allow.
    """
    size, share = sampler.prompts_per_step, traits_of(sampler, SamplerTraits).refill
    more, left = sampler.refill(kept, drawn), size + replacements(share, size) - drawn
    if more <= max(0, min(size - kept, left)):
        return more
    what = f"asks for {more} more groups: {kept} of {size} are kept, and its refill of {share:g}"
    what += f" allows {max(0, left)} more replacements of dropped groups in this step"
    raise misuse(sampler, what, "return no more from refill, or raise SamplerTraits.refill")


def _decided(
    generator: Generator,
    sampler: Sampler,
    draws: Sequence[Draw],
    params: SamplingParams,
    *,
    version: int,
    step: int,
) -> list[Sampled]:
    """The groups of these draws, in their order, each extended until the sampler has decided."""
    begun: dict[int, Sampled] = {}
    waiting = list(draws)
    while waiting:
        extended: list[Draw] = []
        for part in generator.generate(waiting, params, version=version, step=step):
            whole = joined(begun.get(part.draw.index), part)
            decision = sampler.observe(whole.group)
            if isinstance(decision, Extend):
                first = len(whole.group.members)
                extended.append(replace(whole.draw, n=decision.n, first=first))
            elif isinstance(decision, Drop):
                whole = replace(whole, drop=decision)
            else:
                whole = replace(whole, reads=decision.reads)
            begun[part.draw.index] = whole
        waiting = extended
    return [begun[draw.index] for draw in draws]


def joined(begun: Sampled | None, part: Sampled) -> Sampled:
    """Return a group with the completions it was extended by."""
    if begun is None:
        return part
    members = begun.group.members + part.group.members
    return Sampled(
        replace(begun.draw, n=len(members)),
        begun.prompt_text,
        replace(begun.group, members=members),
    )


def outcome_of(sampled: Sampled) -> Outcome:
    """Return the outcome of a group that the sampler has decided on."""
    passed = [member.passed for member in sampled.group.members]
    return Outcome(
        index=sampled.draw.index,
        problem_id=sampled.draw.problem.id,
        successes=passed.count(True),
        failures=passed.count(False),
        kept=sampled.drop is None,
    )


def _fault(given: Any, n: int) -> str:
    """Return the fault in an engine's answer to a request of n completions; empty if none."""
    if not isinstance(given, Sequence) or len(given) != n:
        return f"gave {given!r:.80} for {n} seeds"
    for generation in given:
        if not isinstance(generation, Generation) or not isinstance(generation.text, str):
            return f"gave {generation!r:.80}, not a Generation with text"
        ids, logps = (
            generation.token_ids,
            generation.logprobs if isinstance(generation.logprobs, Sequence) else (),
        )
        good = all(isinstance(token, int) and token >= 0 for token in ids)
        if not good or len(logps) != len(ids) or any(map(math.isnan, logps)):
            return f"gave the tokens {ids!r:.60} with the log-probs {logps!r:.60}"
    return ""


def _completion(prompt_ids: tuple[int, ...], generation: Generation) -> Completion:
    transcript = generation.transcript
    failed = transcript is not None and transcript.failed
    if generation.finish_reason not in ("stop", "length") and not failed:
        raise RunError(
            f"the engine gave a completion that ended by '{generation.finish_reason}', which is no "
            f"answer to judge",
            remedy="an engine samples again what it aborted, or fails",
        )
    return Completion(
        prompt_ids=prompt_ids,
        token_ids=generation.token_ids,
        logprobs=generation.logprobs,
        loss_mask=(True,) * len(generation.token_ids)
        if generation.loss_mask is None
        else generation.loss_mask,
        text=generation.text,
        finish_reason=generation.finish_reason,
        version=generation.version,
        usage=generation.usage,
        transcript=transcript,
        token_versions=generation.token_versions,
        branches=generation.branches,
    )


def _pass_on(
    target: Judgement, first: Callable[[list[Verdicts]], None]
) -> Callable[[Judgement], None]:
    """Pass a future's result on, after ``first`` has been called with it."""

    def done(source: Judgement) -> None:
        try:
            result = source.result()
            first(result)
        except BaseException as error:
            target.set_exception(error)
        else:
            target.set_result(result)

    return done
