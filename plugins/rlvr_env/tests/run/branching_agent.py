"""An agent that asks a helper aside, tries its last question twice, and sums its history up."""

from openai import OpenAI

from rlvr_core.api import Verdict


def run(task, base_url, api_key):
    """Four histories: the problem's, one of a helper, a second try, and a shortened one."""
    client = OpenAI(base_url=base_url, api_key=api_key, max_retries=0, timeout=600)

    def ask(*said):
        roles = ("user", "assistant")
        messages = [{"role": roles[n % 2], "content": text} for n, text in enumerate(said)]
        reply = client.chat.completions.create(model="any", messages=messages)
        return reply.choices[0].message.content or ""

    prompt = task["prompt"]
    first = ask(prompt)
    helped = ask("help")
    ask(prompt, first, helped + "\n")
    ask(prompt, first, helped + "\n")
    ask(prompt + first[:3])


def short(problem, completion):
    """A reward that differs from answer to answer."""
    return Verdict(1.0 - min(len(completion.text), 40) / 40)
