"""Verifiers for the tests of the guard ``canaries``; workers import this module."""

import re

from rlvr_core.api import NoConfig, Verdict


class Brackets:
    """Passes a text with one number in brackets, the answer."""

    def __init__(self, config: NoConfig) -> None:
        self.calls = 0

    def gold(self, problem):
        return f"it is [{problem.spec['answer']}]"

    def verify(self, problem, completion):
        numbers = re.findall(r"\[(\d+)\]", completion.text)
        read = numbers[0] if len(numbers) == 1 else None
        passed = read == problem.spec["answer"]
        return Verdict(float(passed), passed=passed, extracted=read)


class Stateful(Brackets):
    """Says of every other completion what it said of the one before."""

    def verify(self, problem, completion):
        self.calls += 1
        if self.calls % 2:
            self.last = super().verify(problem, completion)
        return self.last


class Lax(Brackets):
    """Passes any number of as many digits."""

    def verify(self, problem, completion):
        verdict = super().verify(problem, completion)
        passed = len(verdict.extracted or "") == len(problem.spec["answer"])
        return Verdict(float(passed), passed=passed, extracted=verdict.extracted)
