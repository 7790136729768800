"""Verdicts of a group follow from answers: one answer has one verdict, two numbers do not pass."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Metric
from rlvr_core.builtin.canaries.forms import read
from rlvr_core.builtin.canaries.numbers import differ, plain

if TYPE_CHECKING:
    from rlvr_core.api import Group, Json, Judged

FEWEST = 3
"""Minimum problems of a kind for a warning."""
SHARE = 0.05
"""Minimum share of problems of this kind, among those that could be, for a warning."""
TOLD = "told"
"""Form of all answers that verifiers report."""
KINDS = {"mixed": "repeated", "denied": "met", "several": "different"}
"""Each kind that is counted, and the problems that could be of it."""
_OF_THE_ANSWER = ("extracted", "correct")
"""Parts of a verdict about the answer itself, like the verdict as a whole."""


class Consistency:
    """Counts problems whose verdicts do not follow from the answers that the verifier took.

    Args:
        say: Prints a message for the user.
    """

    reports = (
        Metric(
            "references/mixed",
            "Problems so far in which one answer both passes and fails.",
            "problems",
        ),
        Metric(
            "references/denied",
            "Problems so far in which an answer that is the reference fails.",
            "problems",
        ),
        Metric(
            "references/several", "Problems so far in which different numbers pass.", "problems"
        ),
    )

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._counts = dict.fromkeys((*KINDS, *KINDS.values()), 0)
        self._first = dict.fromkeys(KINDS, "")
        self._reported: list[str] = []
        self._telling: set[str] = set()
        self._shapes: set[str] = {TOLD}
        """Forms of which some answer has passed: in others, right answers fail for their form."""

    def count(self, group: Group, reference: str, tolerance: float) -> None:
        """Count a group whose answers are reported by the verifier, or clear from the text.

        Args:
            group: The judged group.
            reference: The stated reference; empty if there is none.
            tolerance: Relative difference of numbers that the verifier may allow.
        """
        answers = [(member, self._answer(member, reference)) for member in group.members]
        known = [(member, *one) for member, one in answers if one is not None]
        self._shapes |= {shape for member, shape, _ in known if member.passed}
        passable = {id(member) for member, shape, _ in known if shape in self._shapes}
        by_answer: defaultdict[str, list[Judged]] = defaultdict(list)
        by_form: defaultdict[str, list[Judged]] = defaultdict(list)
        for member, shape, answer in known:
            # exact text: the verifier may judge its form
            by_answer[answer].append(member)
            by_form[f"{shape}:{answer}"].append(member)
        accepted = [one for one in by_answer.get(reference, ()) if id(one) in passable]
        self._count_mixed(group, by_form)
        self._count_denied(group, accepted, reference)
        self._count_several(group, by_answer, tolerance)

    def learn(self, groups: Iterable[Group]) -> None:
        """Note which verifiers report the answers that they take."""
        for group in groups:
            for member in group.members:
                name, verdict = next(iter(member.verdicts.items()), ("", None))
                if verdict is not None and verdict.extracted:
                    self._telling.add(name)

    def _answer(self, member: Judged, reference: str) -> tuple[str, str] | None:
        """Return form and answer of a completion; None without an outcome or a clear answer.

        Of verifiers that never report what they take, the answer is read from the text.
        """
        name, verdict = next(iter(member.verdicts.items()), ("", None))
        if verdict is None or member.passed is None:
            return None
        if name in self._telling:
            return (TOLD, verdict.extracted) if verdict.extracted else None
        if member.completion.finish_reason == "length" or not reference:
            return None
        return read(member.completion.text, reference)

    def _count_mixed(self, group: Group, by_answer: Mapping[str, list[Judged]]) -> None:
        alike = [
            members
            for some in by_answer.values()
            for members in _by_parts(some)
            if len(members) > 1 and any(one.passed for one in members)
        ]
        self._counts["repeated"] += bool(alike)
        for members in alike:
            if not all(one.passed for one in members):
                good, bad = (next(m for m in members if bool(m.passed) is w) for w in (True, False))
                self._counts["mixed"] += 1
                self._first["mixed"] = self._first["mixed"] or (
                    f"of {group.problem.id}, {good.completion.text[-40:]!r} passes and "
                    f"{bad.completion.text[-40:]!r} fails"
                )
                return

    def _count_denied(self, group: Group, members: list[Judged], reference: str) -> None:
        """Count answers equal to the reference that fail, if only the answer was judged wrong."""
        if plain(reference) is None or not members:
            return
        self._counts["met"] += 1
        failing = [one for one in members if not one.passed and not _otherwise_wrong(one)]
        if failing:
            self._counts["denied"] += 1
            self._first["denied"] = self._first["denied"] or (
                f"of {group.problem.id}, {failing[0].completion.text[-40:]!r}; the reference is "
                f"{reference}"
            )

    def _count_several(
        self, group: Group, by_answer: Mapping[str, list[Judged]], tolerance: float
    ) -> None:
        numbers = {one: value for one in by_answer if (value := plain(one)) is not None}
        passing = [one for one in numbers if any(member.passed for member in by_answer[one])]
        if len(numbers) < 2 or not passing:
            return
        self._counts["different"] += 1
        first = numbers[passing[0]]
        others = [one for one in passing if differ(first, numbers[one], tolerance)]
        if others:
            self._counts["several"] += 1
            self._first["several"] = self._first["several"] or (
                f"of {group.problem.id}, {passing[0]} and {others[0]}"
            )

    def tell(self) -> None:
        """Warn the user, once about each kind."""
        counts = self._counts
        words = {
            ("mixed", "repeated"): "one answer both passes and fails: {first}. The verifier judges "
            "something beside the answer (form, length, text around it), or verdicts are mixed up",
            ("denied", "met"): "an answer that is the reference fails: {first}. The verifier "
            "compares with another answer (a gold of another row, another field), judges something "
            "beside the answer, or verdicts are mixed up",
            ("several", "different"): "different numbers pass: {first}. The verifier is too lax, "
            "unless these problems have several right answers",
        }
        for (kind, of), text in words.items():
            few = counts[kind] < max(FEWEST, SHARE * counts[of])
            if few or kind in self._reported:
                continue
            self._reported.append(kind)
            self._say(
                f"warning: guard references: in {counts[kind]} of {counts[of]} problems "
                f"{text.format(first=self._first[kind])}; see rlvr docs guards#references"
            )

    def report(self) -> Mapping[str, float]:
        """Return the counts so far."""
        return {f"references/{kind}": float(self._counts[kind]) for kind in KINDS}

    def state_dict(self) -> dict[str, Json]:
        """Return the state for a checkpoint."""
        return {
            "counts": self._counts,
            "first": self._first,
            "told": self._reported,
            "telling": sorted(self._telling),
            "shapes": sorted(self._shapes),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` returned."""
        self._counts, self._first = dict(state["counts"]), dict(state["first"])
        self._reported = list(state["told"])
        # a checkpoint of an older version has neither
        self._telling, self._shapes = (
            set(state.get("telling", ())),
            {TOLD, *state.get("shapes", ())},
        )


def _by_parts(members: list[Judged]) -> list[list[Judged]]:
    """Group completions by the parts of their verdicts that are not about the answer."""
    alike: defaultdict[object, list[Judged]] = defaultdict(list)
    for member in members:
        parts = next(iter(member.verdicts.values())).parts
        alike[tuple((n, v) for n, v in parts.items() if n not in _OF_THE_ANSWER)].append(member)
    return list(alike.values())


def _otherwise_wrong(member: Judged) -> bool:
    """Whether a part of the verdict that is not about the answer failed."""
    parts = next(iter(member.verdicts.values())).parts
    return any(value < 1 for name, value in parts.items() if name not in _OF_THE_ANSWER)
