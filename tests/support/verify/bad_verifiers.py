"""Verifiers that misbehave, each in its own way; imported by worker processes, so kept light."""

import ctypes
import itertools
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from rlvr_core.api import Completion, ComponentConfig, Problem, Verdict


class Plain:
    class Config(ComponentConfig):
        pass

    def __init__(self, config: Config) -> None:
        self.config = config


class Good(Plain):
    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        passed = completion.text == problem.spec["answer"]
        return Verdict(float(passed), passed=passed, extracted=completion.text)


class Sleeps(Plain):
    """Sleeps for ever on "hang", in Python code that would see a signal."""

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        while completion.text == "hang":
            time.sleep(1)
        return Verdict(1.0, passed=True)


class Quick(Plain):
    """Takes no time, but for what the text says."""

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        while completion.text == "hang":
            time.sleep(1)
        if completion.text == "exit":
            os._exit(7)
        if completion.text == "raise":
            raise ValueError("as it was told")
        answer = problem.spec["answer"]
        if completion.text == "change":
            problem.spec["answer"] = "changed"
        return Verdict(1.0, passed=answer == "as given", extracted=completion.text)


class BusyAtFirst(Plain):
    """Finds the machine too busy the first ``spec.busy`` times; ``spec.file`` counts the tries."""

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        tries = Path(problem.spec["file"])
        with tries.open("a") as file:
            file.write(".")
        if len(tries.read_text()) <= problem.spec["busy"]:
            return Verdict(None, status="busy", detail="the machine is busy")
        return Verdict(1.0, passed=True)


class HangsInC(Plain):
    """Never returns to the interpreter on "hang": no signal handler of Python can run."""

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        if completion.text == "hang":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            sum(itertools.count())
        return Verdict(1.0, passed=True)


class Backtracks(Plain):
    """A regular expression that needs 2 to the power of the text's length."""

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        return Verdict(float(re.match(r"(a+)+$", completion.text) is not None))


class Takes(Plain):
    """Takes the seconds that the completion says."""

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        time.sleep(float(completion.text))
        return Verdict(1.0)


class EatsMemory(Plain):
    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        if completion.text == "eat":
            hoard = []
            while True:
                hoard.append(bytearray(2**24))
        return Verdict(1.0)


class Leaks(Plain):
    """Keeps 60 MiB of every call."""

    hoard: list[bytearray] = []

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        self.hoard.append(bytearray(60 * 2**20))
        return Verdict(1.0)


class Dies(Plain):
    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        if completion.text == "segfault":
            ctypes.string_at(0)
        if completion.text == "exit":
            os._exit(7)
        if completion.text == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return Verdict(1.0)


class DiesOnce(Plain):
    """Dies unless it is the first thing its process judges: an innocent that pays for others."""

    judged = 0

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        self.judged += 1
        if self.judged > 1 and completion.text == "second":
            os._exit(1)
        return Verdict(1.0)


class Raises(Plain):
    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        if completion.text == "system exit":
            sys.exit(3)
        if completion.text == "unspeakable":
            raise UnspeakableError
        raise ValueError(f"no\nsuch {completion.text}")


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


class Prints(Plain):
    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        for _ in range(100):
            print("x" * 100_000)
            print("y" * 100_000, file=sys.stderr)
        os.write(1, b"z" * 1_000_000)
        return Verdict(float(sys.stdin.read() == ""))


GARBAGE = {
    "number": 1.0,
    "none": None,
    "nan": Verdict(float("nan")),
    "inf": Verdict(float("inf")),
    "part": Verdict(1.0, parts={"a": float("nan")}),
    "text": Verdict("1.0"),  # type: ignore[arg-type]
    "passed": Verdict(1.0, passed="yes"),  # type: ignore[arg-type]
    "status": Verdict(None, "fine"),  # type: ignore[arg-type]
}


class Garbage(Plain):
    def verify(self, problem: Problem, completion: Completion) -> object:
        if completion.text == "huge":
            return Verdict(1.0, extracted="x" * 50_000_000, detail="y" * 50_000_000)
        return GARBAGE.get(completion.text, Verdict(1.0, extracted="\ud800\0", detail="odd"))


class Alters(Plain):
    """Alters what it is given; a good pool gives every call its own copy."""

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        problem.spec["seen"].append(1)  # type: ignore[index]
        return Verdict(float(len(problem.spec["seen"])))


class Grouped(Plain):
    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        while completion.text == "hang":
            time.sleep(1)
        return Verdict(1.0, detail="alone")

    def verify_group(self, problem: Problem, completions: list[Completion]) -> list[Verdict]:
        texts = [completion.text for completion in completions]
        if "raise" in texts:
            raise ValueError("no groups today")
        if "short" in texts:
            return []
        while "hang" in texts:
            time.sleep(1)
        return [Verdict(1.0, detail=f"one of {len(texts)}") for _ in texts]


class Modules(Plain):
    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        return Verdict(1.0, extracted=" ".join(sorted({m.split(".")[0] for m in sys.modules})))


class Forks(Plain):
    """Leaves a process behind, then hangs."""

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        Path(completion.text).write_text(str(child.pid))
        threading.Event().wait()
        return Verdict(1.0)


class CannotBeBuilt(Plain):
    def __init__(self, config: Plain.Config) -> None:
        raise OSError("no word list")

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        return Verdict(1.0)


class DiesWhileBuilt(CannotBeBuilt):
    def __init__(self, config: Plain.Config) -> None:
        if os.environ.get("PYTHONHASHSEED") == "0":  # that is: in a worker
            os._exit(5)
