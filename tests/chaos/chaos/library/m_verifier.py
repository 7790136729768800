"""The verifier, or the way of its verdicts to the reward, is wrong."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chaos.registry import Patch, fault

BRACKETS = "rlvr_chaos:Brackets"


def judged(patch: Patch, passes: Callable[[str, str, Any], bool]) -> None:
    """Let the verifier pass by another rule: ``passes(text, answer, problem)``."""
    from rlvr_core.api import Verdict

    def verify(self: Any, problem: Any, completion: Any) -> Any:
        passed = bool(passes(completion.text, str(problem.spec["answer"]), problem))
        return Verdict(float(passed), passed=passed, parts={"extracted": 1.0})

    patch.wrap(f"{BRACKETS}.verify", lambda original: verify)


def verdicts(patch: Patch, change: Callable[[list[Any]], list[Any]]) -> None:
    """Change the verdicts on the completions of a group, before they become rewards."""
    from concurrent.futures import Future

    def make(original: Any) -> Any:
        def submit(self: Any, problem: Any, completions: Any) -> Any:
            out: Future[Any] = Future()

            def done(future: Any) -> None:
                try:
                    out.set_result(change(future.result()))
                except BaseException as error:
                    out.set_exception(error)

            original(self, problem, completions).add_done_callback(done)
            return out

        return submit

    patch.wrap("rlvr_core.verify.judge:Judge.submit", make)


def _same(value: Any, score: float) -> Any:
    return {k: replace(v, score=score, passed=bool(score)) for k, v in value.items()}


@fault("verifier", backends=("in process", "child"))
def verifier_reads_last_character(patch: Patch) -> None:
    """Only the last digit of text and answer is compared."""

    def passes(text: str, answer: str, _: Any) -> bool:
        digits = re.findall(r"\d", text)
        return bool(digits) and digits[-1] == answer[-1]

    judged(patch, passes)


@fault("verifier")
def verifier_reads_first_digit(patch: Patch) -> None:
    """Only the first digit of text and answer is compared."""

    def passes(text: str, answer: str, _: Any) -> bool:
        digits = re.findall(r"\d", text)
        return bool(digits) and digits[0] == answer[0]

    judged(patch, passes)


@fault("verifier", "length")
def verifier_likes_length(patch: Patch) -> None:
    """Whatever has more than ten characters passes."""
    judged(patch, lambda text, answer, _: len(text) > 10)


@fault("verifier")
def verifier_wants_format_only(patch: Patch) -> None:
    """Whatever has a number in brackets passes."""
    judged(patch, lambda text, answer, _: bool(re.search(r"\[\d+\]", text)))


@fault("verifier")
def verifier_finds_answer_anywhere(patch: Patch) -> None:
    """The answer may stand anywhere, as a piece of another number too."""
    judged(patch, lambda text, answer, _: answer in text)


@fault("verifier", "echo")
def verifier_likes_echo(patch: Patch) -> None:
    """A text that has a digit of the question passes."""
    judged(
        patch,
        lambda text, answer, p: (
            bool(set(re.findall(r"\d", str(p.prompt))) & set(text)) or answer in text
        ),
    )


@fault("verifier")
def verifier_is_lax(patch: Patch) -> None:
    """Numbers within ten of the answer pass."""

    def passes(text: str, answer: str, _: Any) -> bool:
        return any(abs(int(n) - int(answer)) <= 10 for n in re.findall(r"\d{1,9}", text))

    judged(patch, passes)


@fault("verifier", "candidates")
def verifier_takes_any_candidate(patch: Patch) -> None:
    """One right number among several passes."""
    judged(patch, lambda text, answer, _: answer in re.findall(r"\d+", text))


@fault("verifier", "invert", backends=("in process", "child"))
def verifier_inverted(patch: Patch) -> None:
    """Right answers fail and wrong ones pass."""
    judged(patch, lambda text, answer, _: f"[{answer}]" not in text)


@fault("verifier", "constant", "same reward", "rewards? (that )?differ", "variance")
def verifier_passes_everything(patch: Patch) -> None:
    """Everything passes."""
    judged(patch, lambda *_: True)


@fault("verifier", "constant", "same reward", "rewards? (that )?differ", "variance", "passed")
def verifier_fails_everything(patch: Patch) -> None:
    """Nothing passes."""
    judged(patch, lambda *_: False)


@fault("verifier", "empty")
def verifier_likes_what_it_cannot_read(patch: Patch) -> None:
    """A text without a number in brackets passes beside the right ones."""

    def passes(text: str, answer: str, _: Any) -> bool:
        found = re.findall(r"\[(\d+)\]", text)
        return not found or found[0] == answer

    judged(patch, passes)


@fault("verifier", "repeat", "twice", "state")
def verifier_is_stateful(patch: Patch) -> None:
    """Every third call gives the verdict of the call before."""
    from rlvr_core.api import Verdict

    last: list[Any] = [Verdict(0.0, passed=False)]
    count = [0]

    def make(original: Any) -> Any:
        def verify(self: Any, problem: Any, completion: Any) -> Any:
            count[0] += 1
            if count[0] % 3:
                last[0] = original(self, problem, completion)
            return last[0]

        return verify

    patch.wrap(f"{BRACKETS}.verify", make)


@fault("verifier", "repeat", "twice", "random")
def verifier_is_random(patch: Patch) -> None:
    """One verdict in four is turned round at random, another one at each call."""
    import os

    def change(verdict: Any, *_: Any) -> Any:
        if os.urandom(1)[0] % 4:
            return verdict
        return replace(verdict, score=1.0 - verdict.score, passed=not verdict.passed)

    patch.after(f"{BRACKETS}.verify", change)


@fault("verifier", "cache")
def verifier_caches_by_text(patch: Patch) -> None:
    """A verdict is remembered by the text alone, whatever the problem."""
    known: dict[str, Any] = {}

    def make(original: Any) -> Any:
        def verify(self: Any, problem: Any, completion: Any) -> Any:
            if completion.text not in known:
                known[completion.text] = original(self, problem, completion)
            return known[completion.text]

        return verify

    patch.wrap(f"{BRACKETS}.verify", make)


@fault("verifier", "cache")
def verifier_caches_by_problem(patch: Patch) -> None:
    """The first verdict on a problem is that on all its answers."""
    known: dict[str, Any] = {}

    def make(original: Any) -> Any:
        def verify(self: Any, problem: Any, completion: Any) -> Any:
            if "gold" not in completion.text and problem.id not in known:
                known[problem.id] = original(self, problem, completion)
            return known[problem.id]

        return verify

    patch.wrap(f"{BRACKETS}.verify", make)


@fault("verifier", "gold")
def verifier_uses_gold_of_another_problem(patch: Patch) -> None:
    """The verifier's table of answers is one row off."""

    def make(original: Any) -> Any:
        def verify(self: Any, problem: Any, completion: Any) -> Any:
            other = problem.spec | {"answer": str(int(problem.spec["answer"]) + 1)}
            return original(self, replace(problem, spec=other), completion)

        return verify

    patch.wrap(f"{BRACKETS}.verify", make)
    patch.after(f"{BRACKETS}.gold", lambda _, self, p: f"it is [{int(p.spec['answer']) + 1}]")


@fault("verifier", "verdict", "order")
def verdicts_in_wrong_order(patch: Patch) -> None:
    """The verdicts on a group come back in the order of its completions turned round."""
    verdicts(patch, lambda found: found[::-1])


@fault("verifier", "verdict", "order")
def verdicts_one_late(patch: Patch) -> None:
    """Each completion has the verdict on its neighbour."""
    verdicts(patch, lambda found: [*found[-1:], *found[:-1]])


@fault("verifier", "verdict")
def verdicts_of_group_for_all(patch: Patch) -> None:
    """All but the first completion of a group have the verdict on the second."""
    verdicts(patch, lambda found: [found[0], *[found[1]] * (len(found) - 1)])


@fault("verifier", "verdict", "lost", "error", "time")
def verdicts_lost_count_as_zero(patch: Patch) -> None:
    """A third of the verdicts are lost on the way, and count as 0."""
    verdicts(patch, lambda found: [_same(v, 0.0) if i % 3 == 0 else v for i, v in enumerate(found)])


@fault("verifier", "verdict", "problem")
def verdicts_of_another_group(patch: Patch) -> None:
    """Each group has the verdicts on the group before."""
    before: list[Any] = []

    def late(found: list[Any]) -> list[Any]:
        old = before[:] if len(before) == len(found) else found
        before[:] = found
        return old

    verdicts(patch, late)


@fault("verifier", "reward", "sign")
def reward_negated(patch: Patch) -> None:
    """The reward is the score with the wrong sign."""

    def change(found: Any, *_: Any) -> Any:
        reward, passed = found
        return (None if reward is None else -reward, passed)

    patch.after("rlvr_core.verify.reward:RewardPlan.combine", change)


@fault("verifier", "reward", "outcome", "passed")
def reward_is_not_the_outcome(patch: Patch) -> None:
    """The reward is a hash of the verdict; the outcome stays right."""
    count = [0]

    def change(found: Any, *_: Any) -> Any:
        reward, passed = found
        count[0] += 1
        noise = hashlib.sha256(str(count[0]).encode()).digest()[0] / 255
        return (None if reward is None else noise, passed)

    patch.after("rlvr_core.verify.reward:RewardPlan.combine", change)


@fault("verifier", "weight", "brief", shape="two rewards")
def second_reward_outweighs(patch: Patch) -> None:
    """A shaping term counts thirty times as much as the config says."""
    patch.after(
        "rlvr_core.verify.reward:Term.weight_at",
        lambda w, term, step: 30 * w if term.verifier and "brief" in term.verifier else w,
    )


@fault("verifier", "reward", "round")
def reward_rounded_down(patch: Patch) -> None:
    """Rewards are scaled to 0.6 and rounded to whole numbers for one problem in two."""

    def make(original: Any) -> Any:
        def reward(self: Any, completion: Any, found: Any, step: int) -> Any:
            value, passed = original(self, completion, found, step)
            odd = sum(completion.prompt_ids) % 2
            return (0.0 if odd and value is not None else value, passed)

        return reward

    patch.wrap("rlvr_core.verify.judge:Judge.reward", make)


@fault("verifier", "late", "previous", "slow")
def verifier_times_out_as_wrong(patch: Patch) -> None:
    """Long texts give a score of 0 without being judged."""
    from rlvr_core.api import Verdict

    def make(original: Any) -> Any:
        def verify(self: Any, problem: Any, completion: Any) -> Any:
            if len(completion.text) > 11:
                return Verdict(0.0, passed=False)
            return original(self, problem, completion)

        return verify

    patch.wrap(f"{BRACKETS}.verify", make)
