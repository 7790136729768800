"""A complete rlvr plugin in one module: a verifier that wants to be greeted by name."""

from __future__ import annotations

import re

from rlvr_core.api import (
    Completion,
    ComponentConfig,
    DataError,
    Example,
    Problem,
    Registrar,
    Verdict,
    VerifierTraits,
    hookimpl,
)


@hookimpl
def register_verifiers(registrar: Registrar) -> None:
    """Add our verifier; it becomes ``hello/greeting``."""
    registrar.add("greeting", "rlvr_hello:Greeting", summary="The response greets by name.")


class Greeting:
    """Full marks for "Hello, Ada", some for a greeting without the name."""

    traits = VerifierTraits(reward_range=(0.0, 1.0))

    class Config(ComponentConfig):
        """Options of ``hello/greeting``."""

        greeting: str = "hello"
        """The word that counts as a greeting."""
        nameless: float = 0.25
        """Score of a greeting without the name."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def check(self, problem: Problem) -> None:
        """Refuse a problem that does not say whom to greet."""
        name = problem.spec.get("name")
        if not isinstance(name, str) or not name.strip():
            raise DataError(
                f"problem {problem.id}: 'name' must be a name, not {name!r}",
                remedy="give each row a field 'name'",
            )

    def gold(self, problem: Problem) -> str:
        """A response that must get full marks."""
        return f"{self.config.greeting}, {problem.spec['name']}!"

    @staticmethod
    def example() -> Example:
        """What ``rlvr plugins check`` tries it with."""
        right = {"spec": {"name": "Ada"}, "response": "Hello, Ada!", "passed": True}
        wrong = {"spec": {"name": "Ada"}, "response": "Hello, Adam!", "passed": False}
        return Example(config={"nameless": 0.1}, cases=[right, wrong])

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Look for the greeting, with or without the name."""
        greeting, name = re.escape(self.config.greeting), re.escape(problem.spec["name"])
        if re.search(rf"\b{greeting},? {name}(?!\w)", completion.text, re.IGNORECASE):
            return Verdict(1.0, passed=True, detail="greeted by name")
        if re.search(rf"\b{greeting}\b", completion.text, re.IGNORECASE):
            return Verdict(self.config.nameless, passed=False, detail="greeted, but not by name")
        return Verdict(0.0, passed=False, detail="no greeting")
