"""An engine, a pool and a plan that a test scripts, to play conversations with."""

from __future__ import annotations

import os
from concurrent.futures import Future

import pytest

from plugins.rlvr_env.tests.environments import turn_toys
from rlvr_core.api import (
    EngineTraits,
    Generation,
    Problem,
    Prompt,
    RunError,
    SamplingParams,
    Verdict,
)
from rlvr_core.config.model import EnvironmentSection
from rlvr_core.rollout.collect import Generator
from rlvr_core.verify.judge import Judge
from rlvr_core.workers.process import ComponentSpec
from rlvr_env.environments.plan import EnvironmentPlan
from rlvr_env.environments.turns import TurnTaking

TOYS = turn_toys.__name__
PARAMS = SamplingParams(max_tokens=100)


class Engine:
    """One token a letter (its code point); says what the script has for the text so far."""

    def __init__(self, script, *, at_once=False):
        self.script = script
        self.at_once = at_once
        self.traits = EngineTraits(continuous=at_once)
        self.queue = []
        self.requests = []
        self.drains = 0
        self.closed = False

    def submit(self, request):
        self.requests.append(request)
        future = Future()
        self.queue.append((request, future))
        return future

    def drain(self, timeout):
        self.drains += 1
        while self.queue:
            jobs, self.queue = (
                ([self.queue.pop(0)], self.queue) if self.at_once else (self.queue, [])
            )
            for request, future in jobs:
                try:
                    future.set_result(tuple(self.answer(request, seed) for seed in request.seeds))
                except RunError as error:
                    future.set_exception(error)

    def answer(self, request, seed):
        said = "".join(map(chr, request.prompt_ids))
        text = self.script(said, seed)
        if isinstance(text, Exception):
            raise text
        whole = text[: request.params.max_tokens]
        reason = "stop" if whole == text else "length"
        logprobs = tuple(-0.01 * (i + 1) for i in range(len(whole)))
        return Generation(tuple(map(ord, whole)), logprobs, whole, reason, 7)

    def close(self):
        self.closed = True


def plan_of(name="Echo", config=None, **section):
    cls = getattr(turn_toys, name)
    spec = ComponentSpec(f"{TOYS}:{name}", config or {})
    made = None if name == "Unready" else cls(cls.Config(**(config or {})))
    # no machine is too busy for a sound answer
    options = {"workers": 1, "timeout": 300.0, "straggler_timeout": 300.0} | section
    full = f"toy/{name}"
    return EnvironmentPlan(
        EnvironmentSection(use=full, **options), {full: spec}, {}, {full: made}, full
    )


def suffix(problem, reply_ids, messages):
    return tuple(ord(c) for message in messages for c in message.content)


def problem(i=0, **spec):
    return Problem(f"p{i}", f"q{i}", "v", spec, "toy", environment="toy/x")


class Pool:
    """A verifier pool that says P passes, and remembers what it was given."""

    def __init__(self):
        self.asked = []

    def submit_group(self, problem, completions, names):
        self.asked += list(completions)
        future = Future()
        verdicts = [Verdict(float("P" in one.text), passed="P" in one.text) for one in completions]
        future.set_result([dict.fromkeys(names, verdict) for verdict in verdicts])
        return future


class Plan:
    @staticmethod
    def names(problem):
        return ("v",)

    @staticmethod
    def combine(verdicts, step):
        return verdicts["v"].score, verdicts["v"].passed


class Errors(list):
    def observe_all(self, completion, verdicts):
        self.extend(verdict.status for verdict in verdicts.values())


def play(script, draws, plan, *, params=PARAMS, at_once=False, deadline=600.0):
    """The completions of these draws, the engine, and what verifiers were shown."""
    engine = Engine(script, at_once=at_once)
    taking = TurnTaking(engine, plan, suffix)
    pool = Pool()
    generator = Generator(
        engine=taking,
        judge=Judge(pool, Plan(), Errors()),
        prompt=lambda problem: Prompt(tuple(map(ord, problem.prompt + "!")), problem.prompt),
        seed=3,
        deadline=deadline,
        say_waiting=lambda label: None,
    )
    try:
        groups = generator.generate(draws, params, version=5, step=0)
        pids = taking._pool.pids()
    finally:
        taking.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert engine.closed
    assert not taking._open
    assert not taking._playing
    assert not taking._waiting
    return [[m.completion for m in one.group.members] for one in groups], engine, groups, pool
