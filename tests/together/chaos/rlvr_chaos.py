"""A plugin as users write them: verifiers of which one knows a right answer, an environment."""

import re

from rlvr_core.api import Done, EnvironmentTraits, Message, NoConfig, Observation, Verdict, hookimpl


@hookimpl
def register_verifiers(registrar):
    registrar.add("brackets", "rlvr_chaos:Brackets", summary="The one number in brackets.")
    registrar.add("brief", "rlvr_chaos:Brief", summary="Short answers.")
    registrar.add("patchy", "rlvr_chaos:Patchy", summary="Like brackets; some it cannot judge.")


@hookimpl
def register_environments(registrar):
    registrar.add("again", "rlvr_chaos:Again", summary="Asks a second time.")


def number_in(text):
    """The number in brackets; None unless there is exactly one."""
    numbers = re.findall(r"\[(-?\d+)\]", text)
    return numbers[0] if len(numbers) == 1 else None


class Brackets:
    """Passes a completion with exactly one number in brackets, the answer."""

    def __init__(self, config: NoConfig) -> None:
        pass

    def gold(self, problem):
        return f"it is [{problem.spec['answer']}]"

    def verify(self, problem, completion):
        answer = number_in(completion.text)
        passed = answer is not None and int(answer) == int(problem.spec["answer"])
        parts = {"extracted": float(answer is not None)}
        return Verdict(float(passed), passed=passed, parts=parts, extracted=answer)


class Brief:
    """The shorter, the better."""

    def __init__(self, config: NoConfig) -> None:
        pass

    def verify(self, problem, completion):
        return Verdict(max(0.0, 1 - len(completion.text) / 16))


class Patchy(Brackets):
    """Judges as Brackets does, but not a completion that begins with a phrase of its list."""

    def verify(self, problem, completion):
        if completion.text.startswith((" so", " well", " I say")):
            return Verdict(None, status="unscorable", detail="not judged")
        return super().verify(problem, completion)


class Again:
    """Asks a second question, by its seed, whatever was answered; either answer counts half."""

    traits = EnvironmentTraits(deterministic=True)

    def __init__(self, config: NoConfig) -> None:
        pass

    def start(self, problem, seed):
        return {"next": 10 + seed % 89, "answer": str(problem.spec["answer"]), "right": []}

    def step(self, state, reply):
        state["right"].append(number_in(reply.text) == state["answer"])
        if len(state["right"]) > 1:
            return Done(Verdict(sum(state["right"]) / 2, passed=any(state["right"])))
        state["answer"] = str(state["next"] + 1)
        return Observation((Message("user", f"After {state['next']} comes:"),))
