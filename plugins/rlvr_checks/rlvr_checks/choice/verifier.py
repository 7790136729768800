"""The verifier ``checks/choice``: the answer names the right option, by its letter or its text."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from rlvr_checks.choice.options import LETTERS
from rlvr_checks.choice.places import Match
from rlvr_checks.choice.reading import read_choice
from rlvr_checks.choice.text import key
from rlvr_core.api import Completion, ComponentConfig, DataError, Problem, Verdict


class ChoiceVerifier:
    """Reads which option an answer names, and compares it with the right one.

    An answer that names none or several options, or denies the right one, is wrong.
    """

    class Config(ComponentConfig):
        """Options of ``checks/choice``."""

        options: Annotated[str, Field(min_length=1)] = "options"
        """Field of the spec with the list of the options' texts, in the order of the prompt."""
        answer: Annotated[str, Field(min_length=1)] = "answer"
        """Field of the spec with the letter of the right option: A is the first."""
        match: Match = "last"
        """Which one counts where an answer has several tags, several boxes or several
        statements: ``last``, or ``first``, as the published evaluation of MMLU-Pro reads it."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def check(self, problem: Problem) -> None:
        """Refuse a problem without options, or whose answer is none of them.

        Raises:
            DataError: If the options are no list of 2 to 10 texts, or the answer is no letter of
                one of them.
        """
        options = problem.spec.get(self._config.options)
        if (
            not isinstance(options, list | tuple)
            or not 2 <= len(options) <= len(LETTERS)
            or not all(isinstance(option, str) and option.strip() for option in options)
        ):
            raise DataError(
                f"{problem.id}: checks/choice needs a list of 2 to {len(LETTERS)} texts in field "
                f"'{self._config.options}'; it is {options!r:.80}"
            )
        answer = problem.spec.get(self._config.answer)
        if not isinstance(answer, str) or len(answer) != 1 or answer not in LETTERS[: len(options)]:
            raise DataError(
                f"{problem.id}: checks/choice needs a letter from A to {LETTERS[len(options) - 1]} "
                f"in field '{self._config.answer}'; it is {answer!r:.80}"
            )

    def gold(self, problem: Problem) -> str:
        """Return a sentence with the right letter."""
        return f"The answer is ({problem.spec[self._config.answer]})."

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Return score 1 for the right option, else 0."""
        options = problem.spec[self._config.options]
        right = str(problem.spec[self._config.answer])
        read = read_choice(completion.text, options, self._config.match)
        if read.letter is None:
            where = f"the {read.place} names no single option" if read.place else "no answer"
            return Verdict(0.0, passed=False, extracted=read.text or None, detail=where)
        index = LETTERS.find(read.letter)
        # some published rows have one text under two letters
        passed = read.letter == right or (
            0 <= index < len(options) and key(options[index]) == key(options[LETTERS.index(right)])
        )
        detail = f"{read.letter}, from the {read.place}"
        return Verdict(float(passed), passed=passed, extracted=read.letter, detail=detail)
