"""The environment ``bs4/web``: a model works on a site with tools until it answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from rlvr_bs4.prompt import ask, rules
from rlvr_bs4.site import resolve
from rlvr_bs4.task import Task
from rlvr_bs4.verifiers import task_from
from rlvr_bs4.web import tools
from rlvr_bs4.web.judge import Scoring, judge
from rlvr_bs4.web.programs import SLACK, STARTING, Programs
from rlvr_bs4.web.record import FREE, Called, CallName, Conversation, Step
from rlvr_core.api import (
    BadCall,
    Done,
    Json,
    Message,
    Names,
    Observation,
    Problem,
    Reply,
    ToolCall,
    Verdict,
)
from rlvr_core.plugins.tool_formats import tool_format

ENVIRONMENT = "bs4/web"
_STATE = "the state of a conversation"
_ROLE = """\
Answer a question about a web site. You do not see its pages: programs that you write do. {tools}
You have {calls} calls; each one beyond what is needed lowers the score, and further ones are not \
carried out. When you know the answer, give it without any call."""


class Web:
    """Tools on a generated site: programs in a sandbox, moving between pages, a check of form."""

    class Config(Scoring):
        """Options of ``bs4/web``."""

        format: Annotated[str, Names("tool_format")] = "hermes"
        """How the model writes calls: ``hermes``, ``llama``, ``python`` or another tool format."""
        prompt: Literal["chat", "text"] = "chat"
        """``chat``: messages, for a chat template, which tells the tools where the format is
        hermes or llama. ``text``: raw text, for models without one."""
        repair: bool = False
        """Put small slips in the JSON of calls right, counted as ``mended``. What was cut off is
        never run."""
        max_calls: Annotated[int, Field(gt=0)] = 16
        """Programs, moves and unreadable calls that are carried out; as many free ones."""
        seconds: Annotated[float, Field(gt=0)] = 5.0
        """Processor time of one program; by the clock it may take three times that."""
        memory_mb: Annotated[int, Field(ge=64)] = 512
        """Memory of a program."""
        max_output: Annotated[int, Field(ge=200)] = 4000
        """Characters shown of what a program prints: three quarters from the start, one from the
        end."""
        backend: Literal[
            "auto", "bwrap", "namespaces", "landlock", "docker", "podman", "unsafe"
        ] = "auto"
        """The sandbox, see docs/sandbox.md."""
        python: str | None = None
        """The interpreter that runs programs; the trainer's own if absent."""
        image: str = "python:3.11-slim"
        """Image of docker and podman."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._made: Programs | None = None

    @staticmethod
    def time_limit(config: Config) -> float:
        """Seconds that one turn may take: it may hold all calls, and servers take time to start."""
        return config.max_calls * (SLACK * config.seconds + 2.0) + STARTING + 60.0

    def task(self, spec: Mapping[str, Json], where: str) -> Task:
        """The task that a problem's spec means.

        Raises:
            DataError: If it cannot be made again.
        """
        return task_from(spec, where)

    def check(self, problem: Problem) -> None:
        """Refuse a problem that is not about a site, and a machine without sandbox.

        Raises:
            DataError: If the task cannot be made again.
            MachineError: If there is no sandbox to run programs in.
        """
        self.task(problem.spec, f"problem {problem.id}")
        _ = self._programs

    def present(self, problem: Problem) -> Problem:
        """The prompt with tools and rules; the same for all tasks but for question and form."""
        task, name = self.task(problem.spec, f"problem {problem.id}"), self.config.format
        by_template = self.config.prompt == "chat" and not tools.is_python(name)
        known = list(tools.TOOLS.values())
        instructions = "" if by_template else f"\n\n{tools.told(name, known)}\n"
        role = _ROLE.format(tools=instructions, calls=self.config.max_calls)
        question = f"{ask(task)}\nThe page you begin on is {task.start}"
        if self.config.prompt == "text":
            prompt = f"{role}\n{rules()}\n\n{question}\n"
            return replace(problem, prompt=prompt, stop=(*problem.stop, *tool_format(name).stop))
        return replace(
            problem,
            prompt=(Message("system", f"{role}\n{rules()}"), Message("user", question)),
            tools=tuple(tool.schema for tool in known) if by_template else (),
        )

    def start(self, problem: Problem, seed: int) -> Conversation:
        """See ``Environment.start``; the site is the problem's, whatever the seed."""
        task = self.task(problem.spec, f"problem {problem.id}")
        return Conversation(dict(problem.spec), [task.start], [task.start])

    def step(self, state: Conversation, reply: Reply) -> Observation | Done:
        """See ``Environment.step``."""
        task = self.task(state.spec, _STATE)
        calls = tools.calls(self.config.format, reply.text, self.config.repair)
        state.steps.append(Step(reply.text))
        if not calls:
            return Done(judge(task, state.steps, state.visited, self.config))
        answers, counts = [], Counter[str]()
        for call in calls:
            called, text = self._call(task, state, call)
            state.steps[-1] = Step(reply.text, (*state.steps[-1].calls, called))
            counts.update(_counts(called))
            answers.append(text)
        if reply.turns_left == 1:
            answers[-1] += "\n(This is your last turn: answer now.)"
        return Observation(tuple(map(self._message, answers)), counts)

    def cut(self, state: Conversation, ended: str) -> Verdict:
        """Score a conversation without an answer: 0, or less if it gives a secret away."""
        verdict = judge(self.task(state.spec, _STATE), state.steps, state.visited, self.config)
        return replace(verdict, detail=f"{ended}: {verdict.detail}")

    def shut(self) -> None:
        """End the sandbox; one that is asked for afterwards is another one."""
        made, self._made = self._made, None
        if made is not None:
            made.close()

    @property
    def _programs(self) -> Programs:
        if self._made is None:
            config = self.config
            self._made = Programs(
                config.backend,
                python=config.python,
                image=config.image,
                seconds=config.seconds,
                memory_mb=config.memory_mb,
                most=config.max_output,
            )
        return self._made

    def _message(self, text: str) -> Message:
        if self.config.prompt == "text":
            return Message("tool", f"\n<tool_response>\n{text}\n</tool_response>\n")
        return Message(tool_format(self.config.format).role, text)

    def _call(
        self, task: Task, state: Conversation, call: ToolCall | BadCall
    ) -> tuple[Called, str]:
        """Carry out a call and return what the model sees of it."""
        name: CallName = "" if isinstance(call, BadCall) else call.name  # type: ignore[assignment]
        if self._left(state, name in FREE) <= 0:
            text = "error: no calls are left; answer with what you know"
            return Called(name, ran=False, error=True), text
        if isinstance(call, BadCall):
            return Called("", ran=False, error=True), f"error: {call.error}"
        mended = len(call.mended)
        given = {key: str(value) for key, value in call.arguments.items()}
        if name == "run_python":
            about = {
                "html": task.pages[state.url],
                "url": state.url,
                "question": task.question,
                "constraints": tools.constraints(task),
            }
            ran = self._programs.run(given["code"], about)
            return Called(name, True, ran.failed, ran.use, mended, ran.timeout), ran.text
        fault, text = self._without_program(task, state, name, given)
        return Called(name, error=fault, mended=mended), text

    def _without_program(
        self, task: Task, state: Conversation, name: CallName, given: Mapping[str, str]
    ) -> tuple[bool, str]:
        """Whether it failed, and the answer."""
        match name:
            case "navigate":
                url = resolve(state.url, given["href"], task.pages)
                if url is None or not given["href"].strip():
                    where = f"error: no page at {given['href'][:200]!r}; still at {state.url}"
                    return True, where
                state.go(url)
            case "back":
                if not state.back():
                    return True, f"error: this is the first page; still at {state.url}"
            case "lint_json":
                return False, tools.lint(task, given["json_string"])
            case _:
                return False, tools.metadata(task, state.url, max(0, self._left(state, False)))
        return False, f"HTML is now {state.url} ({len(task.pages[state.url])} characters)"

    def _left(self, state: Conversation, free: bool) -> int:
        made = [call for step in state.steps for call in step.calls]
        return self.config.max_calls - sum((call.name in FREE) == free for call in made)


def _counts(called: Called) -> dict[str, float]:
    counts = {
        "tool_calls": 1.0,
        "tool_errors": float(called.error),
        "mended": float(called.mended),
        "timeouts": float(called.timeout),
        "bs4": float(called.use.bs4),
    }
    return counts | ({called.name: 1.0} if called.name else {})
