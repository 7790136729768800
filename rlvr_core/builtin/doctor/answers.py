"""Canaries: responses with a known verdict, judged by the run's own verifiers and pool."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rlvr_core.api import Problem, RunError
from rlvr_core.builtin.doctor.report import Answer, Check, refused, share
from rlvr_core.builtin.doctor.subject import Reference, Subject, passes
from rlvr_core.guards.gold import gold_lines
from rlvr_core.guards.wrong_answers import wrong_responses

MOST = 0.5
"""Maximum share of problems that pass a response without an answer: some do by chance."""
SAME = 0.5
"""Share of wrong answers with the same score above 0, above which it rewards their form."""
CANARIES = 24
"""Maximum problems to try of each pair of data set and verifier."""

KINDS = 16
"""Approximate number of responses to try on a problem."""
WAVE = 4
"""Problems tried at once; the time limit is checked between two batches."""

NOTHING = ("an empty answer", "'I do not know.'", "random words", "a long filler")
"""Kinds of wrong responses without any answer."""
AROUND = {
    "a sentence before": "Let me think.\n",
    "forty lines before": "and so it goes on and on, word after word.\n" * 40,
}
"""Neutral text before a right answer."""


@dataclass(frozen=True, slots=True)
class Tried:
    """Number of tried problems that passed a kind of response."""

    passed: int
    n: int

    @property
    def most(self) -> bool:
        """Whether more passed than by chance."""
        return self.n >= 4 and self.passed > MOST * self.n


def _gold(subject: Subject) -> list[Answer]:
    prepared = subject.prepared
    everything = [*subject.problems, *(p for some in subject.held_out.values() for p in some)]
    try:
        lines = gold_lines(everything, prepared.judge, prepared.resolved)
    except RunError as error:
        return refused(error)
    return [Answer("ok", line.removeprefix("gold: ")) for line in lines]


def _share_of_gold(subject: Subject) -> Answer | None:
    judged = [one for one in subject.references if one.verdict is not None]
    wrong = [one for one in judged if one.verdict and not passes(one.verdict)]
    if not judged:
        return None
    if wrong:
        first = wrong[0]
        return Answer(
            "fail",
            f"{share(len(wrong), len(judged))} references do not pass, such as "
            f"{first.response[-40:]!r} for {first.problem.id}: "
            f"{first.verdict.detail if first.verdict else ''}",
            "the verifier does not fit the data, or the data are wrong: rlvr data check CONFIG",
            weight=150,
        )
    return Answer("ok", f"{share(len(judged), len(judged))} references pass")


def _canaries(subject: Subject) -> list[Answer]:
    """Try responses that must fail."""
    found = []
    for pair, references in _pairs(subject).items():
        name = references[0][0]
        known = any(one.verdict is not None and passes(one.verdict) for _, one in references)
        tried: dict[str, list[bool]] = defaultdict(list)
        scores: Counter[float] = Counter()
        raised: dict[str, list[str]] = defaultdict(list)
        begun = time.monotonic()
        for at in range(0, len(references), WAVE):
            if time.monotonic() - begun > subject.seconds:
                break
            waiting = []
            for _, reference in references[at : at + WAVE]:
                responses = _responses(subject, reference)
                future = subject.verdicts(reference.problem, list(responses.values()))
                waiting.append((responses, future))
            for responses, future in waiting:
                for kind, verdicts in zip(responses, future.result(subject.patience), strict=True):
                    tried[kind].append(passes(verdicts[name]))
                    if verdicts[name].status == "error":
                        raised[kind].append(verdicts[name].detail)
                    if kind not in NOTHING and not tried[kind][-1]:
                        scores[verdicts[name].score or 0.0] += 1
        counts = {kind: Tried(sum(some), len(some)) for kind, some in tried.items()}
        answer = _judged(pair, counts, known=known)
        if answer.level == "ok":
            answer = _credited(pair, scores) or answer
        found.append(answer)
        found += _raised(pair, raised, counts)
    return found


def _raised(
    pair: str, raised: Mapping[str, Sequence[str]], counts: Mapping[str, Tried]
) -> list[Answer]:
    """Check whether the verifier fails on wrong answers, which a policy will give it."""
    often = {kind: some for kind, some in raised.items() if len(some) > MOST * counts[kind].n}
    if not often:
        return []
    details = next(iter(often.values()))
    words = ", ".join(often)
    return [
        Answer(
            "warn",
            f"{pair} raises an error on {words}: {details[0][:120]}",
            "give such answers a score of 0: those without a score are dropped, so that the policy "
            "is not punished for them, and many end the run (verify.max_error_rate)",
            weight=119,
            data={kind: len(some) for kind, some in often.items()},
        )
    ]


def _credited(pair: str, scores: Counter[float]) -> Answer | None:
    """Check whether all wrong answers get the same partial reward."""
    (score, n), *_ = scores.most_common(1) or [(0.0, 0)]
    if score <= 0 or n < 8 or n < SAME * scores.total():
        return None
    return Answer(
        "warn",
        f"{pair}: {share(n, scores.total())} wrong answers get a score of {score:g} for their "
        "form: partial credit that the policy can collect without a right answer",
        "if that is not meant, mend the verifier; else give the form a verifier of its own with a "
        "small weight (reward), so that its share of the reward can be seen",
        data={"score": score, "answers": n},
    )


def _judged(pair: str, counts: Mapping[str, Tried], *, known: bool) -> Answer:
    """Judge the wrong answers that passed.

    Args:
        pair: Data set and verifier.
        counts: How many passed, by kind.
        known: Whether they were written in the form of a right answer that passes.
    """
    loose = {kind: one for kind, one in counts.items() if one.most}
    data = {kind: [one.passed, one.n] for kind, one in counts.items()}
    if not loose and not known:
        return Answer(
            "note",
            f"{pair}: canaries were not tested: no right answer that passes is known, and in "
            f"another form wrong ones fail for their form; {len(counts)} kinds that answer nothing "
            "get no reward",
            data=data,
        )
    if not loose:
        kinds = f"{len(counts)} kinds of wrong answers on {max(o.n for o in counts.values())}"
        return Answer("ok", f"{pair}: {kinds} problems get no reward", data=data)
    words = "; ".join(f"{kind}: {share(one.passed, one.n)}" for kind, one in loose.items())
    anything = sum(kind in loose for kind in NOTHING) >= 3
    why = "it passes anything" if anything else "it does not read the answer"
    return Answer(
        "fail",
        f"{pair} passes wrong answers ({why}): {words}",
        "choose or mend the verifier: the run would learn to give such answers (rlvr verify)",
        weight=160,
        data=data,
    )


def _pairs(subject: Subject) -> dict[str, list[tuple[str, Reference]]]:
    """Group references by data set and verifier: those that pass, if any do.

    Of verifiers without gold responses, they are written in the form that passes.
    """
    pairs: dict[str, list[tuple[str, Reference]]] = {}
    for one in subject.affordable(KINDS):
        pairs.setdefault(subject.pair(one.problem), []).append((subject.main(one.problem), one))
    for pair, some in pairs.items():
        form = subject.written.get(pair)
        golds = [(n, one) for n, one in some if one.verdict is not None and passes(one.verdict)]
        given = [(some[0][0], one) for one in form.passing] if form is not None else []
        pairs[pair] = (golds or given or some)[:CANARIES]
    return pairs


def _responses(subject: Subject, reference: Reference) -> dict[str, str]:
    """Return responses to a problem that must fail, by kind."""
    options = subject.prepared.judge.plan.specs[subject.main(reference.problem)].config
    return wrong_responses(reference.problem, reference.response, reference.answer, options)


def _around(subject: Subject) -> list[Answer]:
    """Check whether a verifier that extracts answers also does so after other text."""
    found = []
    for pair, references in _pairs(subject).items():
        name = references[0][0]
        parts = [
            one
            for _, one in references
            if one.verdict is not None and passes(one.verdict) and _read_part(one)
        ]
        if len(parts) < 4:
            continue
        waiting = [
            subject.verdicts(one.problem, [text + one.response for text in AROUND.values()])
            for one in parts
        ]
        failed: Counter[str] = Counter()
        for future in waiting:
            for kind, verdicts in zip(AROUND, future.result(subject.patience), strict=True):
                failed[kind] += not passes(verdicts[name])
        bad = [kind for kind in AROUND if failed[kind] > MOST * len(parts)]
        if not bad:
            found.append(Answer("ok", f"{pair}: {len(parts)} references pass behind other text"))
            continue
        found.append(
            Answer(
                "warn",
                f"{pair}: {share(failed[bad[0]], len(parts))} references fail with {bad[0]}, and "
                "pass alone: the verifier judges more than the answer that it reads, such as the "
                "length or the beginning of a response",
                "mend the verifier, or say in the prompt what form an answer has to have",
                weight=120,
            )
        )
    return found


def _read_part(reference: Reference) -> bool:
    """Return whether the verifier extracted a part of the response as the answer."""
    read = reference.verdict.extracted if reference.verdict is not None else None
    return bool(read) and str(read).strip() != reference.response.strip()


def _repeatable(subject: Subject) -> Answer | None:
    """Check whether the same response gets the same verdict twice."""
    some: list[tuple[Problem, str]] = [
        (one.problem, one.response or one.answer) for one in subject.affordable(2)[:CANARIES]
    ]
    if not some:
        return None
    rounds = []
    # in another order: otherwise a verifier that counts calls could reach the same count again
    for order in (some, [some[0], *reversed(some)]):
        waiting = [(problem, subject.verdicts(problem, [text])) for problem, text in order]
        rounds.append({p.id: future.result(subject.patience)[0] for p, future in waiting})
    differ = [
        id_
        for id_, one in rounds[0].items()
        if {n: v.score for n, v in one.items()} != {n: v.score for n, v in rounds[1][id_].items()}
    ]
    if differ:
        return Answer(
            "fail",
            f"{share(len(differ), len(some))} responses are judged otherwise the second time",
            "the verifier keeps state or draws random numbers: make it a pure function",
        )
    return Answer("ok", f"{len(some)} responses get the same score twice")


ANSWERS: tuple[Check[Subject], ...] = (
    Check("verifier/gold", "Do references pass, and those of others not?", _gold),
    Check("verifier/references", "Do all sampled references pass?", _share_of_gold),
    Check("verifier/canaries", "Do wrong answers get no reward?", _canaries),
    Check("verifier/around", "Do right answers pass behind other text?", _around),
    Check("verifier/repeatable", "Is the same response judged the same twice?", _repeatable),
)
