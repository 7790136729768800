"""An agent that knows OpenAI's client and nothing of training: it may look a number up."""

from __future__ import annotations

import re
import zlib
from typing import Any

from openai import OpenAI

from rlvr_core.api import Completion, Problem, Verdict


def number(of: str) -> str:
    """The tool: how many there are."""
    return str(zlib.crc32(of.encode()) % 90 + 10)


def run(task: dict[str, Any], base_url: str, api_key: str) -> None:
    """Ask the model; where it asks for the tool, tell it what the tool says, and ask again."""
    client = OpenAI(base_url=base_url, api_key=api_key, max_retries=0, timeout=600)
    messages: list[Any] = [{"role": "user", "content": task["prompt"]}]
    for _ in range(2):
        reply = client.chat.completions.create(model="policy", messages=messages)
        text = reply.choices[0].message.content or ""
        asked = re.search(r'"arguments": {"of": "([a-z ]+)"}', text)
        if asked is None:
            return
        said = f"\n<tool_response>\n{number(asked[1])}\n</tool_response>\n"
        messages += [{"role": "assistant", "content": text}, {"role": "user", "content": said}]


def right(problem: Problem, completion: Completion) -> Verdict:
    """The reward: whether the last turn is the number that was asked for."""
    passed = completion.text.strip() == number(str(problem.spec["of"]))
    return Verdict(float(passed), passed=passed)
