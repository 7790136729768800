"""Whether the given answers that a step trains on are those that data and seed give it.

Their order is computed again by the published rule, their tokens by the oracle of prompts.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_core.api import LossComputed, MicroBatch, Problem
    from rlvr_core.builtin.invariants.check import StepView
    from rlvr_core.builtin.invariants.model_files import ModelFiles
    from rlvr_core.builtin.invariants.prompt_oracle import PromptOracle

OURS = "rlvr_core.builtin.demonstrations.demonstrations"
"""Where answers come from whose order is known."""

Row = tuple[tuple[int, ...], tuple[int, ...]]


class GivenRows:
    """Compares the given answers of a step with those that are due.

    Args:
        files: The model's files.
        oracle: Renders prompts.
    """

    def __init__(self, files: ModelFiles, oracle: PromptOracle) -> None:
        self._files, self._oracle = files, oracle
        self._step = -1
        self._due: dict[str, Counter[Row]] = {}
        self._divided: dict[tuple[str, int], int] = {}
        self._read: dict[tuple[str, int], int] = {}

    def wrong(self, view: StepView, event: LossComputed) -> str:
        """Return what is wrong with a micro-batch of given answers; empty if nothing is."""
        terms = {id(term.loss): term for term in view.trainer.objective.terms}
        loss, batch, _ = event.losses[0]
        term = terms.get(id(loss))
        if term is None or type(term.demonstrations).__module__ != OURS:
            return ""
        if self._step != view.step:
            self._step, self._due = view.step, {}
            self._divided, self._read = {}, {}
        if term.name not in self._due:
            reads = view.trainer.train.num_iterations
            rows = Counter(self._rows_of_step(term.demonstrations, view.step))
            self._due[term.name] = Counter({row: reads * n for row, n in rows.items()})
        due, micro = self._due[term.name], event.micro_batch.host
        update = term.name, view.update
        self._divided[update] = event.normalizer.rows
        self._read[update] = self._read.get(update, 0) + len(micro.valid_BT)
        if left_out := int((micro.valid_BT & ~batch.mask_BT.cpu()).sum()):
            return f"{left_out} tokens of the given answers of {term.name} are not in its loss mask"
        for row in _rows(micro):
            if not due[row]:
                prompt, answer = map(self._said, row)
                return (
                    f"the loss {term.name} learns the answer {answer} to the prompt {prompt}, and "
                    "that is none of the step's answers, or one that it has had already"
                )
            due[row] -= 1
        return ""

    def left(self) -> str:
        """Return which answers of the step are in no update, or what else they are divided by."""
        lost = {name: sum(due.values()) for name, due in self._due.items()}
        name = next((name for name, n in lost.items() if n), "")
        if name:
            return f"{lost[name]} of the step's answers for the loss {name} are in no update"
        for (name, update), rows in self._divided.items():
            if rows != self._read[name, update]:
                return (
                    f"the loss {name} is divided by {rows} rows, and update {update + 1} of the "
                    f"step has {self._read[name, update]} of its answers"
                )
        return ""

    def _rows_of_step(self, given: Any, step: int) -> Iterator[Row]:
        answers, n = given.answers, len(given.answers)
        end = self._files.tokenizer.eos_token_id
        for place in range(step * given.rows_per_step, (step + 1) * given.rows_per_step):
            order = list(range(n))
            random.Random(f"demonstrations {given.seed} {place // n}").shuffle(order)
            problem, answer = answers[order[place % n]]
            yield self._prompt(problem), (*self._files.encode(answer), end)

    def _prompt(self, problem: Problem) -> tuple[int, ...]:
        return next(self._oracle.candidates(problem))

    def _said(self, ids: tuple[int, ...]) -> str:
        text = self._files.decode(ids)
        return repr(text if len(text) <= 60 else f"{text[:28]} ... {text[-28:]}")


def _rows(micro: MicroBatch) -> Iterator[Row]:
    for row, place in enumerate(micro.prompt_of_row_B.tolist()):
        n, m = int(micro.prompt_len_S[place]), int(micro.completion_len_B[row])
        prompt = micro.prompt_ids_SP[place, :n].tolist()
        yield tuple(prompt), tuple(micro.completion_ids_BT[row, :m].tolist())
