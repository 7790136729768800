"""A data set, a verifier and an environment of rlvr as an environment of ``verifiers``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import verifiers as vf

from rlvr_core.api import (
    ClosesConversations,
    Completion,
    ConfigError,
    Done,
    Environment,
    Json,
    JudgesUnfinished,
    Message,
    PresentsProblems,
    Problem,
    Reply,
    ToolCall,
    Verdict,
)
from rlvr_core.toolkit import tool_format
from rlvr_env.bridges.judging import Judging, text_of

_VERDICT = "rlvr_verdict"


def table(problems: list[Problem]) -> Any:
    """Return problems as rows for verifiers; ``info`` holds the rest of a problem as text."""
    from datasets import Dataset

    return Dataset.from_list(
        [
            {
                "prompt": _messages(problem.prompt),
                "answer": str(problem.spec.get("answer", "")),
                "info": json.dumps({"problem": _plain(problem)}),
            }
            for problem in problems
        ]
    )


def rubric_of(judges: Mapping[str, Judging]) -> Any:
    """Return a rubric whose one reward is the score of a problem's verifier."""

    async def score(completion: Any, state: Any, info: Mapping[str, Json]) -> float:
        problem = _problem(info)
        judging = judges.get(problem.verifier)
        if judging is None:  # the environment's own word
            verdict = state.get(_VERDICT) or Verdict(None, "unscorable", detail="no verdict")
        else:
            judged = judging.submit(problem, [Completion.from_text(_last(completion))])
            await asyncio.wrap_future(judged)
            (verdict,) = judging.verdicts(judged)
        state["rlvr_status"] = verdict.status
        if verdict.score is None:
            # verifiers logs it, and counts 0: it has no reward that is none
            raise RuntimeError(f"{problem.id}: {verdict.status}: {verdict.detail}")
        return verdict.score

    def unscored(state: Any) -> float:
        return float(state.get("rlvr_status") != "ok")

    return vf.Rubric(funcs=[score, unscored], weights=[1.0, 0.0])


class Conversation(vf.MultiTurnEnv):  # type: ignore[misc]
    """An environment of rlvr, in this process.

    A call of a tool that verifiers gives apart is written as text, as the environment reads it.
    """

    def __init__(self, world: Environment, format_: str, **given: Any) -> None:
        super().__init__(**given)
        self.world = world
        self.format = tool_format(format_)

    async def setup_state(self, state: Any) -> Any:
        """Begin the conversation."""
        problem = _problem(state["info"])
        seed = int(state["example_id"])  # the same for all rollouts of a row
        state["rlvr_state"] = await asyncio.to_thread(self.world.start, problem, seed)
        return state

    async def env_response(self, messages: Any, state: Any, **kwargs: Any) -> Any:
        """Answer the last turn."""
        last, turn = messages[-1], len(state["trajectory"]) - 1
        left = self.max_turns - turn - 1 if self.max_turns > 0 else 1_000_000
        reply = Reply(self._text(last), turn, left)
        answer = await asyncio.to_thread(self.world.step, state["rlvr_state"], reply)
        if isinstance(answer, Done):
            if answer.verdict is not None:
                state[_VERDICT] = answer.verdict
            state["final_env_response"] = []
            return []
        calls = list(last.tool_calls or ())
        return [
            vf.ToolMessage(content=message.content, tool_call_id=calls[i].id)
            if message.role == "tool" and i < len(calls)
            else vf.UserMessage(content=message.content)
            for i, message in enumerate(answer.messages)
        ]

    @vf.cleanup  # type: ignore[untyped-decorator]
    async def end(self, state: Any) -> None:
        """Judge a conversation that was cut off, and give back what it holds."""
        inner = state.get("rlvr_state")
        if inner is None:
            return
        over = state.get("final_env_response") is not None
        if not over and isinstance(self.world, JudgesUnfinished):
            state[_VERDICT] = await asyncio.to_thread(self.world.cut, inner, "max_turns")
        elif not over:
            state[_VERDICT] = Verdict(0.0, passed=False, detail="cut off")
        if isinstance(self.world, ClosesConversations):
            await asyncio.to_thread(self.world.close, inner)
        state.pop("rlvr_state")

    def _text(self, message: Any) -> str:
        text = text_of({"content": message.content})
        calls = [
            ToolCall(call.name, json.loads(call.arguments)) for call in message.tool_calls or ()
        ]
        return "\n".join([text, *map(self.format.render, calls)]).strip() if calls else text


def presented(world: Environment, problem: Problem) -> Problem:
    """Return the problem as its environment shows it to the model."""
    return world.present(problem) if isinstance(world, PresentsProblems) else problem


def tools_of(problems: list[Problem]) -> list[Any] | None:
    """Return the tools that problems offer.

    Raises:
        ConfigError: If they offer different ones.
    """
    offered = {
        json.dumps([dict(tool) for tool in problem.tools], sort_keys=True) for problem in problems
    }
    if len(offered) > 1:
        raise ConfigError("its problems offer different tools", where="environment")
    functions = [tool["function"] for tool in json.loads(offered.pop())] if offered else []
    return [vf.Tool(**{key: tool[key] for key in _TOOL}) for tool in functions] or None


_TOOL = ("name", "description", "parameters")


def _messages(prompt: str | tuple[Message, ...]) -> list[dict[str, str]]:
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [{"role": turn.role, "content": turn.content} for turn in prompt]


def _plain(problem: Problem) -> dict[str, Json]:
    """Return what a verifier reads of a problem, as JSON."""
    kept = ("id", "verifier", "spec", "dataset", "tags", "environment")
    fields = {name: getattr(problem, name) for name in kept}
    text = isinstance(problem.prompt, str)
    turns = () if isinstance(problem.prompt, str) else problem.prompt
    shown = problem.prompt if text else [asdict(turn) for turn in turns]
    return {**fields, "spec": dict(problem.spec), "tags": dict(problem.tags), "prompt": shown}


def _problem(info: Mapping[str, Json]) -> Problem:
    fields = dict(info["problem"])
    if not isinstance(fields["prompt"], str):
        fields["prompt"] = tuple(Message(**turn) for turn in fields["prompt"])
    return Problem(**fields)


def _last(completion: Any) -> str:
    replies = [message for message in completion if message.role == "assistant"]
    return text_of({"content": replies[-1].content}) if replies else ""
