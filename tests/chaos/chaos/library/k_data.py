"""The data, or what is drawn of them, are wrong."""

from __future__ import annotations

import random
from typing import Any

from chaos.registry import Patch, declare, fault

Rows = list[dict[str, Any]]


def _gold_of_others(rows: Rows) -> Rows:
    answers = [row["answer"] for row in rows]
    return [
        row | {"answer": answer}
        for row, answer in zip(rows, answers[7:] + answers[:7], strict=True)
    ]


def _some_wrong(share: float) -> Any:
    def change(rows: Rows) -> Rows:
        rng = random.Random(0)
        return [
            row | {"answer": str(rng.randrange(10, 100))} if rng.random() < share else row
            for row in rows
        ]

    return change


declare(
    "data",
    "gold-of-other-problems",
    "Every problem has the reference answer of another.",
    "consensus",
    data=_gold_of_others,
    backends=("in process", "child"),
)
declare(
    "data",
    "gold-wrong-in-thirty-percent",
    "30 % of the reference answers are wrong.",
    "consensus",
    data=_some_wrong(0.3),
)
declare(
    "data",
    "gold-wrong-in-sixty-percent",
    "60 % of the reference answers are wrong.",
    "consensus",
    data=_some_wrong(0.6),
)
declare(
    "data",
    "gold-off-by-one",
    "Every reference answer is one too large.",
    "consensus",
    data=lambda rows: [row | {"answer": str(int(row["answer"]) + 1)} for row in rows],
)
declare(
    "data",
    "gold-constant",
    "Every problem has the same reference answer.",
    "consensus",
    "same",
    data=lambda rows: [row | {"answer": "42"} for row in rows],
)
declare(
    "data",
    "answer-in-prompt",
    "The reference answer stands in the prompt.",
    "leak",
    data=lambda rows: [row | {"question": f"[{row['answer']}] {row['question']}"} for row in rows],
    backends=("in process", "child"),
)
declare(
    "data",
    "answer-in-half-of-the-prompts",
    "The reference answer stands in every other prompt.",
    "leak",
    data=lambda rows: [
        row | {"question": f"[{row['answer']}] {row['question']}"} if i % 2 else row
        for i, row in enumerate(rows)
    ],
)
declare(
    "data",
    "twenty-problems-under-many-ids",
    "89 ids, and 20 problems.",
    "same",
    data=lambda rows: [rows[i % 20] | {"id": row["id"]} for i, row in enumerate(rows)],
)
declare(
    "data",
    "one-problem-under-many-ids",
    "89 ids, and one problem.",
    "same",
    data=lambda rows: [rows[0] | {"id": row["id"]} for row in rows],
)
declare(
    "data",
    "prompts-without-the-number",
    "The prompt lacks what is asked for.",
    "same",
    "identical",
    data=lambda rows: [row | {"question": "After  comes:"} for row in rows],
)
declare(
    "data",
    "prompts-of-other-problems",
    "Prompts were shuffled against answers.",
    "consensus",
    data=lambda rows: [
        row | {"question": other["question"]}
        for row, other in zip(rows, rows[11:] + rows[:11], strict=True)
    ],
)
declare(
    "data",
    "same-prompt-two-answers",
    "Each prompt occurs twice, with different answers.",
    "same",
    "contradict",
    data=lambda rows: [
        *rows,
        *(row | {"id": row["id"] + "b", "answer": str(int(row["answer"]) + 9)} for row in rows),
    ],
)
declare(
    "data",
    "prompts-cut",
    "Prompts end four characters early.",
    "same",
    "identical",
    data=lambda rows: [row | {"question": row["question"][:-4]} for row in rows],
)
declare(
    "data",
    "prompts-in-html",
    "Prompts hold markup instead of text.",
    "markup",
    "entit",
    data=lambda rows: [
        row | {"question": f"<p>After&nbsp;{row['question'][6:]}</p>"} for row in rows
    ],
)
declare(
    "data",
    "prompt-markers",
    "Prompts hold the markers of a chat template that the model has not.",
    "marker",
    "template",
    data=lambda rows: [
        row | {"question": f"<|im_start|>user\n{row['question']}<|im_end|>\n"} for row in rows
    ],
)


@fault("data", "sampler", "problem", "drawn", "epoch")
def sampler_draws_the_same_problems(patch: Patch) -> None:
    """The sampler draws the same eight problems in every step."""

    def make(original: Any) -> Any:
        def choose(self: Any, n: int, step: int) -> Any:
            if not hasattr(self, "_first"):
                self._first = list(original(self, n, step))
            return iter((self._first * n)[:n])

        return choose

    patch.wrap("rlvr_core.builtin.samplers.epochs:EpochSampler.choose", make)


@fault("data", "sampler", "problem", "drawn", "epoch", "same")
def sampler_draws_one_problem(patch: Patch) -> None:
    """Every draw of the run is the same problem."""

    def make(original: Any) -> Any:
        def choose(self: Any, n: int, step: int) -> Any:
            if not hasattr(self, "_first"):
                self._first = list(original(self, 1, step))
            return iter(self._first * n)

        return choose

    patch.wrap("rlvr_core.builtin.samplers.epochs:EpochSampler.choose", make)


@fault("data", "dropped", "kept", "group")
def groups_with_failures_dropped(patch: Patch) -> None:
    """The sampler drops every group with less than half of its completions passed."""
    from rlvr_core.api import Drop

    def change(decision: Any, self: Any, group: Any) -> Any:
        passed = [member.passed for member in group.members]
        low = passed.count(True) * 2 < len(passed)
        return Drop("zero_variance", "all_failed") if low else decision

    patch.after("rlvr_core.builtin.samplers.base:SamplerBase.observe", change)
