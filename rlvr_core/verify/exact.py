"""The verifier ``core/exact``: the completion must equal the answer exactly."""

from __future__ import annotations

from rlvr_core.api import Completion, ComponentConfig, DataError, Problem, Verdict


class Exact:
    """Compares the whole completion with a field of the problem's spec."""

    class Config(ComponentConfig):
        """Options of ``core/exact``."""

        field: str = "answer"
        """Field of the spec that holds the right answer."""
        strip: bool = True
        """Ignore white space at both ends, of answer and completion."""
        casefold: bool = False
        """Ignore case."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def check(self, problem: Problem) -> None:
        """Refuse a problem without a text answer.

        Raises:
            DataError: If the field is missing, not text, or empty (every empty completion would
                pass).
        """
        field = self._config.field
        answer = problem.spec.get(field)
        if not isinstance(answer, str) or not self._normal(answer):
            raise DataError(
                f"{problem.id}: core/exact needs text in field '{field}'; it is {answer!r:.80}",
                remedy=f"fields there are: {', '.join(map(str, problem.spec)) or 'none'}",
            )

    def gold(self, problem: Problem) -> str:
        """Return the answer itself."""
        return str(problem.spec[self._config.field])

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Return score 1 if equal, else 0."""
        answer = completion.text.strip() if self._config.strip else completion.text
        passed = self._normal(completion.text) == self._normal(self.gold(problem))
        detail = "equal" if passed else "not equal"
        return Verdict(float(passed), passed=passed, extracted=answer, detail=detail)

    def _normal(self, text: str) -> str:
        text = text.strip() if self._config.strip else text
        return text.casefold() if self._config.casefold else text
