"""Environments for tests: one that counts turns, and those that go wrong in every way."""

import os
import time
from dataclasses import replace
from pathlib import Path

from rlvr_core.api import ComponentConfig, DataError, Done, Message, NoConfig, Observation, Verdict
from rlvr_core.api.traits import EnvironmentTraits
from rlvr_env.environments.lookup import LookupWorld


class Echo:
    """Says ``<n:REPLY>`` n times, then is done; writes down what is started and closed."""

    class Config(ComponentConfig):
        """Options."""

        replies: int = 1
        log: str = ""

    def __init__(self, config):
        self.config = config

    def present(self, problem):
        return replace(problem, prompt=f"{problem.prompt}!", stop=("#",))

    def check(self, problem):
        if "bad" in problem.spec:
            raise DataError(f"{problem.id} is bad")

    def _note(self, what, state):
        if self.config.log:
            with Path(self.config.log).open("a") as file:
                file.write(f"{what} {state['id']} {state['seed']} {os.getpid()}\n")

    def start(self, problem, seed):
        state = {"id": problem.id, "seed": seed, "n": 0}
        self._note("start", state)
        return state

    def step(self, state, reply):
        assert reply.turn == state["n"]
        state["n"] += 1
        if state["n"] > self.config.replies:
            passed = "P" in reply.text
            return Done(Verdict(float(passed), passed=passed, parts={"n": state["n"]}))
        said = Message("tool", f"<{state['n']}:{reply.text}>")
        return Observation((said,), {"calls": 1, "left": reply.turns_left})

    def close(self, state):
        self._note("close", state)


class Worth(Echo):
    """Has a word to say of conversations that were cut."""

    def cut(self, state, ended):
        return Verdict(0.25, passed=False, detail=f"{ended} after {state['n']}")


class Faulty:
    """Goes wrong as the problem's spec says: in which call, and how."""

    Config = NoConfig

    def __init__(self, config):
        pass

    def _maybe(self, where, state):
        if state.get("in") != where:
            return
        how = state["how"]
        if how == "hang":
            time.sleep(1e6)
        while how == "wait" and not Path(state["for"]).exists():
            time.sleep(0.05)
        if how == "exit":
            os._exit(3)
        if how == "raise":
            raise RuntimeError("broken on purpose")

    def start(self, problem, seed):
        self._maybe("start", problem.spec)
        return dict(problem.spec)

    def step(self, state, reply):
        self._maybe("step", state)
        how = state.get("how") if state.get("in") == "step" else None
        odd = {
            "text": "not an observation",
            "silent": Observation(()),
            "system": Observation((Message("system", "x"),)),
            "nan": Observation((Message("user", "x"),), {"n": float("nan")}),
        }
        if how in odd:
            return odd[how]
        if how == "lambda":
            state["f"] = lambda: 0
        return Done(Verdict(1.0, passed=True))

    def close(self, state):
        self._maybe("close", state)


class Forgiving:
    """Its model reads errors: the first call fails as the spec says, or every one."""

    Config = NoConfig
    traits = EnvironmentTraits(on_error="observe", role="user", max_characters=100)

    def __init__(self, config):
        pass

    def start(self, problem, seed):
        return dict(problem.spec) | {"calls": 0}

    def step(self, state, reply):
        state["calls"] += 1
        how = state.get("how")
        if how == "long":
            return Observation((Message("tool", "x" * 5000),))
        if how == "always" or (how and reply.turn == 0):
            if how == "hang":
                time.sleep(1e6)
            if how == "exit":
                os._exit(3)
            if how == "silent":
                return Observation(())
            raise RuntimeError("broken on purpose")
        return Done(Verdict(1.0, passed=True, detail=f"calls: {state['calls']}"))


class NoCounting:
    """A seed whose numbers cannot be looked up."""

    name, calls = "red cats", 0

    def number(self, name):
        raise KeyError(name)


class BrokenLookup(LookupWorld):
    """``env/lookup`` in one world of which the tool raises."""

    def start(self, problem, seed):
        return NoCounting() if problem.id == "p1" else super().start(problem, seed)


class Verbose:
    """Answers with as many characters as the spec says."""

    Config = NoConfig

    def __init__(self, config):
        pass

    def start(self, problem, seed):
        return problem.spec["size"]

    def step(self, state, reply):
        return Observation((Message("tool", "x" * state),))


class Unready:
    """Cannot be constructed."""

    Config = NoConfig

    def __init__(self, config):
        raise RuntimeError("no licence")
