"""Environments as their authors write them for verifiers."""

from __future__ import annotations

import verifiers as vf
from datasets import Dataset


def rows(n):
    return Dataset.from_list(
        [{"question": f"{i}+{i}=", "answer": str(2 * i), "info": {"i": i}} for i in range(n)]
    )


async def exact(completion, answer) -> float:
    if completion[-1].content == "crash":
        raise ValueError("no such answer")
    return float(completion[-1].content == answer)


def brief(completion, info) -> float:
    return 1 / len(completion[-1].content) + info["i"]


def best(completions, **kwargs) -> list[float]:
    sizes = [len(completion[-1].content) for completion in completions]
    return [float(size == min(sizes)) for size in sizes]


def add(a: int, b: int) -> int:
    """Adds two numbers.

    Args:
        a: One.
        b: The other.
    """
    return a + b


class Guess(vf.MultiTurnEnv):
    async def setup_state(self, state):
        state["guesses"] = []

    @vf.stop
    async def found(self, state) -> bool:
        return bool(state["guesses"]) and state["guesses"][-1] == int(state["answer"])

    async def env_response(self, messages, state, **kwargs):
        said = messages[-1].content
        guess = int(said) if said.isdecimal() else len(said)
        state["guesses"].append(guess)
        if guess == int(state["answer"]):
            state["final_env_response"] = [{"role": "user", "content": "yes"}]
            return state["final_env_response"]
        return [{"role": "user", "content": "higher" if guess < int(state["answer"]) else "lower"}]


def few(state) -> float:
    return 1.0 / max(1, len(state["guesses"]))


def load_environment(kind="single", n=3):
    if kind == "single":
        rubric = vf.Rubric(funcs=[exact, brief], weights=[1.0, 0.0])
        return vf.SingleTurnEnv(dataset=rows(n), system_prompt="Add.", rubric=rubric)
    if kind == "group":
        return vf.SingleTurnEnv(dataset=rows(n), rubric=vf.Rubric(funcs=[best]))
    if kind == "tools":
        return vf.ToolEnv(dataset=rows(n), tools=[add], rubric=vf.Rubric(funcs=[exact]))
    if kind == "guess":
        return Guess(dataset=rows(n), rubric=vf.Rubric(funcs=[few]), max_turns=4)
    raise ValueError(f"no kind {kind}")
