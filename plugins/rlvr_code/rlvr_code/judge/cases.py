"""Inputs with expected answers, compared here: the program sees the inputs and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlvr_code.inside import codec, serve
from rlvr_code.judge.outcome import Budget, Outcome, Tally, ended
from rlvr_code.judge.rounds import MARGIN, limits_of, with_server
from rlvr_code.judge.talk import FailedError, Talk
from rlvr_code.sandbox import answers
from rlvr_code.sandbox.limits import Limits, Result
from rlvr_code.sandbox.meter import PATIENCE, Timer
from rlvr_code.sandbox.sandbox import Sandbox, as_bytes
from rlvr_code.sandbox.server import Run, Server


@dataclass(frozen=True, slots=True)
class Case:
    """One test.

    Attributes:
        given: What goes in.
        right: The judgement on what comes out.
        size: Characters or bytes of the right answer; many more are not read.
    """

    given: Any
    right: Callable[[Any], bool]
    size: int


def judge_output(
    sandbox: Sandbox,
    code: str,
    cases: Sequence[Case],
    budget: Budget,
    *,
    files: Mapping[str, bytes] | None = None,
    processes: int = 1,
    more_mb: int = 0,
) -> Outcome:
    """Run a program once per case: text in, text out.

    Args:
        sandbox: Where it runs.
        code: The program.
        cases: ``given`` is its standard input, ``right`` is asked about its standard output.
        budget: Time and memory.
        files: What lies in its folder.
        processes: Processes it may have, which share the memory.
        more_mb: Address space besides that of the budget.
    """
    longest = max((case.size for case in cases), default=0)
    limits = Limits(
        cpu_seconds=budget.case_seconds,
        wall_seconds=PATIENCE * budget.case_seconds + MARGIN,
        memory_mb=processes * (budget.memory_mb + more_mb),
        processes=processes,
        output_kb=4096 + longest // 128,
    )

    def some(server: Server, tally: Tally, timer: Timer) -> None:
        server.open("script", as_bytes(code), files or {}, limits)
        while not tally.done and not timer.over:
            case = cases[tally.seen]
            timer.begin(server)
            result = finished(Run(server, limits, as_bytes(case.given)), timer)
            timer.end()
            if not result.ok:
                tally.add(ended(result))
            elif result.dropped[0]:
                tally.add("too much output")
            else:
                tally.add("" if case.right(result.stdout) else f"not {result.stdout[:100]!r}")
        server.close_job()

    return with_server(sandbox, len(cases), budget, some)


def judge_calls(
    sandbox: Sandbox, code: str, function: str, cases: Sequence[Case], budget: Budget
) -> Outcome:
    """Call a function of a program, or a method of its class ``Solution``, once per case.

    Args:
        sandbox: Where it runs.
        code: The program.
        function: The function's name.
        cases: ``given`` is its list of arguments, ``right`` is asked about the value it returns.
        budget: Time and memory.
    """
    limits = limits_of(budget)
    # tags can be ten times the data
    longest = (1 << 20) + 10 * max((case.size for case in cases), default=0)

    def some(server: Server, tally: Tally, timer: Timer) -> None:
        server.open("serve", as_bytes(code), {}, limits)
        timer.begin(server)
        talk = Talk(server, limits, min(longest, codec.LONGEST))
        talk.loaded_or_failed(timer, tally)
        try:
            while not tally.done and not timer.over:
                timer.begin(server)
                tally.add(_call(talk, function, cases[tally.seen], timer))
        except FailedError as error:
            tally.add(str(error))
        timer.end()
        talk.end()

    return with_server(sandbox, len(cases), budget, some)


def finished(run: Run, timer: Timer) -> Result:
    """The end of a program, which is brought about when its time is over."""
    while run.result is None:
        if not timer.ready():
            run.kill()
            return run.finish()
        for kind, body in run.server.news():
            run.take(kind, body)
    return run.result


def _call(talk: Talk, function: str, case: Case, timer: Timer) -> str:
    """Why a call was not right; empty if it was."""
    if talk.unasked:
        raise FailedError("it broke the protocol")
    request = {"op": "call", "to": _Method(function), "args": case.given}
    talk.tell(serve.ASK, codec.dumps(request, _tag))
    kind, body = talk.wait(timer)
    if kind != serve.ANSWER:
        raise FailedError("it broke the protocol")
    try:
        answer = answers.read(body)
        if serve.UNFIT in answer:
            return f"{answers.shown(answer[serve.UNFIT])}"
        if "e" in answer:
            return f"it raised {answers.shown(answer['e'][2])}"
        value = answer["v"]
    except (codec.UnfitError, LookupError, TypeError) as error:
        raise FailedError("it broke the protocol") from error
    try:
        return "" if case.right(value) else f"not {answers.shown(value)}"
    except RecursionError:
        return "it is nested too deeply"


@dataclass(frozen=True, slots=True)
class _Method:
    name: str


def _tag(value: object) -> dict[str, Any]:
    if isinstance(value, _Method):
        return {"t": serve.METHOD, "v": value.name}
    raise codec.UnfitError(type(value).__name__)


def size(value: Any) -> int:
    """Bytes of arguments, or of a value, as text."""
    return len(codec.dumps(value, _tag))
