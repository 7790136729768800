"""Plain functions as rewards, wrong and healthy, each in three forms; a judge that calls them.

``python -m tests.guards.plain_functions`` prints what names each.
"""

from __future__ import annotations

import random
import re
from concurrent.futures import Future
from fractions import Fraction
from types import SimpleNamespace

from rlvr_core.api import Completion, Group, GroupsScored, Judged, NoConfig, Problem, StepFinished
from rlvr_core.api.services import RewardPlan, RunConfig, Term, VerifierSpec, load_host
from rlvr_core.builtin.canaries.references import References
from rlvr_core.builtin.canaries.watch import Canaries
from rlvr_core.builtin.doctor import answers
from rlvr_core.builtin.doctor.subject import Subject
from rlvr_core.builtin.verifiers.function import verifier_of

FORMS = {
    "boxed": (r"\\boxed\{(.*?)\}", "we add and get \\boxed{%s}"),
    "answer": (r"Answer: (\S*)", "we add.\nAnswer: %s"),
    "tags": (r"<answer>(.*?)</answer>", "we add <answer>%s</answer>"),
}
"""What a function reads in each form, and how a policy writes it."""


def value(text):
    try:
        return float(Fraction(text.replace(",", "").rstrip(".")))
    except (ValueError, ZeroDivisionError):
        return None


def near(given, answer, allowed):
    return value(given) is not None and abs(value(given) - value(answer)) <= allowed


def digits(text):
    return re.sub(r"\D", "", text)


WRONG = {
    "the last digit": lambda given, answer, text: given[-1:] == answer[-1:],
    "the first digit": lambda given, answer, text: digits(given)[:1] == digits(answer)[:1],
    "begins with it": lambda given, answer, text: given.startswith(answer),
    "it begins with what is given": lambda given, answer, text: answer.startswith(given),
    "what is given stands in it": lambda given, answer, text: given in answer,
    "stands in what is given": lambda given, answer, text: answer in given,
    "stands in the text": lambda given, answer, text: answer in text,
    "longer is better": lambda given, answer, text: len(text) > 200,
    "no sign": lambda given, answer, text: digits(given) == digits(answer),
    "any number of the text": lambda given, answer, text: answer in re.findall(r"-?\d+", text),
    "rounded to tens": lambda given, answer, text: near(given, answer, 5),
    "any case and length": lambda given, answer, text: (
        bool(given) and (len(given), given.isupper()) == (len(answer), answer.isupper())
    ),
    "the same digits": lambda given, answer, text: sorted(given) == sorted(answer),
}
"""Rules that pass wrong answers."""
HEALTHY = {
    "the same text": lambda given, answer, text: given == answer,
    "without space": lambda given, answer, text: given.strip(" .$") == answer,
    "as numbers": lambda given, answer, text: near(given, answer, 1e-6),
    "within a thousandth": lambda given, answer, text: near(given, answer, 1e-4 * value(answer)),
    "without commas": lambda given, answer, text: given.replace(",", "") == answer,
    "in any case": lambda given, answer, text: given.casefold() == answer.casefold(),
    "whole numbers": lambda given, answer, text: (
        bool(re.fullmatch(r"-?\d+", given)) and int(given) == int(answer)
    ),
    "short texts alone": lambda given, answer, text: given == answer and len(text) < 400,
    "at the end alone": lambda given, answer, text: (
        given == answer and text.rstrip(" .<>/}answer")[-1:].isdigit()
    ),
    "one answer alone": lambda given, answer, text: given == answer and text.count(given) == 1,
}
"""Rules that pass right answers."""


def function(rule, form):
    """Make a reward that reads the last answer in a form, and judges it by a rule."""
    pattern = FORMS[form][0]

    def reward(text, answer):
        found = re.findall(pattern, text, re.DOTALL)
        return bool(found) and bool(rule(found[-1], answer, text))

    return reward


class Judge:
    """Judges at once, in this process."""

    def __init__(self, reward):
        verifier = verifier_of(reward)(NoConfig())
        specs = {"my/v": VerifierSpec("my:v", {})}
        self.plan = RewardPlan((Term("my/v", 1.0),), specs, {}, {"my/v": verifier})
        self.pool = SimpleNamespace(stats=dict)
        self._verifier = verifier

    def submit(self, problem, completions):
        done = Future()
        done.set_result([{"my/v": self._verifier.verify(problem, one)} for one in completions])
        return done


def problems(n=24):
    """Sums of two numbers."""
    rng = random.Random(3)
    pairs = [(rng.randrange(10, 99), rng.randrange(10, 99)) for _ in range(n)]
    return [
        Problem(f"p{at}", f"What is {a} + {b}?", "my/v", {"answer": str(a + b)}, "toy")
        for at, (a, b) in enumerate(pairs)
    ]


def doctor(reward):
    """The doctor's answer about canaries."""
    prepared = SimpleNamespace(
        judge=Judge(reward),
        problems={one.id: one for one in problems()},
        resolved=SimpleNamespace(host=load_host({"RLVR_PLUGINS": ""})),
        config=CONFIG,
    )
    found = answers._canaries(Subject(prepared, CONFIG))
    return found[0]


CONFIG = RunConfig.model_validate(
    {"model": {"path": "m"}, "data": {"sources": ["core/jsonl"]}, "train": {"steps": 99}}
)


def sampled(judge, form, rng, written=FORMS):
    """Groups of a policy that is right half the time, and near it otherwise."""
    groups = []
    for problem in problems():
        right = int(problem.spec["answer"])
        members = []
        for _ in range(8):
            off = rng.choice([1, -1, 2, 10, -10, 100, 20, -2 * right])
            given = right if rng.random() < 0.5 else right + off
            text = written[form][1] % given
            one = Completion((1,), (2, given), (-1.0,) * 2, (True,) * 2, text, "stop", 0)
            (verdict,) = judge.submit(problem, [one]).result()
            passed = verdict["my/v"].passed
            members.append(Judged(one, verdict, verdict["my/v"].score, passed))
        groups.append(Group(problem, tuple(members), 0))
    return tuple(groups)


def run(reward, form, steps=24, written=FORMS):
    """What the guards ``canaries`` and ``references`` say in a run."""
    said, judge, rng = [], Judge(reward), random.Random(1)
    watch, references = Canaries(CONFIG, judge, 0, said.append), References(judge.plan, said.append)
    for step in range(steps):
        event = GroupsScored(step, step, sampled(judge, form, rng, written))
        for guard in (references, watch):
            guard.on_groups(event)
        watch.on_step(StepFinished(step, step, {}, {"rollout": 1.0, "train": 1.0}))
    return said


if __name__ == "__main__":
    for name, rules in (("wrong", WRONG), ("healthy", HEALTHY)):
        found = {}
        for rule, judged in rules.items():
            for form in FORMS:
                reward = function(judged, form)
                found[rule, form] = doctor(reward).level, run(reward, form)
        for (rule, form), (level, said) in found.items():
            print(f"{name:8} {rule:30} {form:7} {level:5}", *(one[15:120] for one in said))
        named = sum(level == "fail" for level, _ in found.values())
        print(f"{name}: doctor names {named}, a run {sum(bool(s) for _, s in found.values())}, "
              f"of {len(found)}")  # fmt: skip
