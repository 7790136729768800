"""Agent programs that know nothing but OpenAI's client, for ``env/agent``."""

import json
import os
import sys

from openai import OpenAI

TOOL = {
    "type": "function",
    "function": {
        "name": "get",
        "description": "Get.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}},
    },
}


def ask(client, messages, **more):
    return client.chat.completions.create(model="any", messages=messages, **more).choices[0].message


def plain(task, base_url=None, api_key=None):
    """Two turns in one history."""
    client = OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
    messages = [{"role": "user", "content": task["prompt"]}]
    messages.append(ask(client, messages).model_dump())
    messages.append({"role": "user", "content": "more"})
    ask(client, messages)


def streaming(task, base_url=None, api_key=None):
    """As ``plain``, with answers in a stream."""
    client = OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
    messages = [{"role": "user", "content": task["prompt"]}]
    chunks = client.chat.completions.create(model="any", messages=messages, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "more"}]
    ask(client, messages)


USAGES = []
"""What ``counting`` was said of tokens."""


def counting(task, base_url=None, api_key=None):
    """Two turns, of which the second is a stream; keeps the numbers of tokens."""
    client = OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
    messages = [{"role": "user", "content": task["prompt"]}]
    first = client.chat.completions.create(model="any", messages=messages)
    messages += [first.choices[0].message.model_dump(), {"role": "user", "content": "more"}]
    options = {"include_usage": True}
    stream = client.chat.completions.create(
        model="any", messages=messages, stream=True, stream_options=options
    )
    *chunks, last = stream
    assert all(chunk.usage is None for chunk in chunks)
    assert last.choices == []
    USAGES[:] = [first.usage, last.usage]


def editing(task, base_url=None, api_key=None):
    """Goes on, asks another model's question aside, edits its history, and goes on again."""
    client = OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
    main = [{"role": "user", "content": task["prompt"]}]
    main.append(ask(client, main).model_dump())
    ask(client, [{"role": "user", "content": "aside"}])  # no part of the conversation
    main.append({"role": "user", "content": "more"})
    main.append(ask(client, main).model_dump())  # goes on with what was said first
    edited = [main[0], {"role": "assistant", "content": "b"}, {"role": "user", "content": "so"}]
    ask(client, edited)


def talk(task, base_url, api_key, *histories, tools=()):
    """Ask with each history in turn: texts are the user's, numbers the replies so far."""
    client = OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
    replies, more = [], {"tools": [TOOL]} if tools else {}
    for history in histories:
        messages = []
        for one in history:
            if isinstance(one, int):
                messages.append(replies[one].model_dump(exclude_none=True))
            elif one in tools:
                (call,) = messages[-1]["tool_calls"]
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": one})
            else:
                messages.append({"role": "user", "content": one})
        replies.append(ask(client, messages, **more))


def linear(task, base_url=None, api_key=None):
    """One growing history."""
    hi = task["prompt"]
    talk(task, base_url, api_key, [hi], [hi, 0, "more"], [hi, 0, "more", 1, "on"])


def retrying(task, base_url=None, api_key=None):
    """Asks its last question twice."""
    hi = task["prompt"]
    talk(task, base_url, api_key, [hi], [hi, 0, "more"], [hi, 0, "more"])


def tree(task, base_url=None, api_key=None):
    """Goes on in three ways."""
    hi = task["prompt"]
    talk(task, base_url, api_key, [hi], [hi, 0, "x"], [hi, 0, "y"], [hi, 0, "z"])


def delegating(task, base_url=None, api_key=None):
    """Has a sub-agent with a prompt of its own."""
    hi, sub = task["prompt"], "sub"
    talk(task, base_url, api_key, [hi], [sub], [sub, 1, "more"], [hi, 0, "so"])


def wordy(task, base_url=None, api_key=None):
    """Has a sub-agent with a prompt that is longer than a conversation may be."""
    talk(task, base_url, api_key, [task["prompt"]], ["s" * 310])


def summarising(task, base_url=None, api_key=None):
    """Puts a summary in the place of the first half."""
    hi = task["prompt"]
    half = [[hi], [hi, 0, "more"]]
    talk(task, base_url, api_key, *half, [hi, "sum"], [hi, "sum", 2, "on"])


def shortening(task, base_url=None, api_key=None):
    """Cuts an old tool result short."""
    hi, whole, cut = task["prompt"], "long long", "long"
    before = [[hi], [hi, 0, whole], [hi, 0, whole, 1, "b"]]
    after = [[hi, 0, cut, 1, "b", 2, "on"], [hi, 0, cut, 1, "b", 2, "on", 3, "end"]]
    talk(task, base_url, api_key, *before, *after, tools=(whole, cut, "b"))


def calling(task, base_url=None, api_key=None):
    """Calls a tool."""
    client = OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
    messages = [{"role": "user", "content": task["prompt"]}]
    reply = ask(client, messages, tools=[TOOL])
    (call,) = reply.tool_calls
    assert json.loads(call.function.arguments) == {"key": "a"}
    messages.append(reply.model_dump(exclude_none=True))
    messages.append({"role": "tool", "tool_call_id": call.id, "content": "ba"})
    ask(client, messages, tools=[TOOL])


def other_prompt(task, base_url=None, api_key=None):
    """Does not begin with the problem."""
    client = OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
    ask(client, [{"role": "user", "content": "else"}])


def failing(task, base_url=None, api_key=None):
    """Fails after its first turn."""
    client = OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
    ask(client, [{"role": "user", "content": task["prompt"]}])
    raise RuntimeError("the agent is broken")


if __name__ == "__main__":
    plain(json.load(sys.stdin), os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"])
