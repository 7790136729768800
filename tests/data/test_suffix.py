"""The tokens between two turns, for templates of several families."""

import pytest

from rlvr_core.api import DataError, Message, Problem
from rlvr_core.config.model import PromptSection
from rlvr_core.data.prompts import Renderer
from tests.support.tokenizers import byte_tokenizer

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|h|>"]
# drops the thoughts of all turns but the last, and tells tools in a system message
QWEN = """{%- if tools %}<|im_start|>system
{% for t in tools %}{{ t | tojson }}{% endfor %}<|im_end|>
{% endif %}{%- for m in messages %}
{%- if m.role == 'tool' %}<|im_start|>user
<tool_response>
{{ m.content }}
</tool_response><|im_end|>
{% elif m.role == 'assistant' %}<|im_start|>assistant
{{ m.content if loop.last else m.content.split('</think>')[-1] }}<|im_end|>
{% else %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endif %}{%- endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
LLAMA = """{%- for m in messages %}<|h|>{{ 'ipython' if m.role == 'tool' else m.role }}

{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|h|>assistant

{% endif %}"""
NO_TOOLS = """{%- for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tool role') }}
{%- endif %}[{{ m.role }}] {{ m.content }}{% endfor %}"""
FORGETFUL = "{{ messages[-1].content }}<|im_end|>"


def renderer(template=None, eos="<|im_end|>"):
    made = byte_tokenizer(SPECIAL, eos)
    made.chat_template = template
    return made, Renderer(made, PromptSection(chat_template="always" if template else "auto"))


PROBLEM = Problem("p", "2+2?", "v", {}, "toy")
TOOL = (Message("tool", "4"),)


def suffix(template, reply, messages=TOOL, problem=PROBLEM):
    tok, made = renderer(template)
    reply_ids = tok(reply, add_special_tokens=False)["input_ids"]
    return tok.decode(list(made.suffix_ids(problem, reply_ids, messages)))


RESPONSE = (
    "<|im_start|>user\n<tool_response>\n4\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
)


@pytest.mark.parametrize(
    ("template", "reply", "found"),
    [
        (QWEN, "call<|im_end|>", "\n" + RESPONSE),
        (QWEN, "call", "<|im_end|>\n" + RESPONSE),  # it was stopped by a string
        (QWEN, "call<|endoftext|>", "\n" + RESPONSE),  # another end is an end too
        (QWEN, "<think>long</think>call<|im_end|>", "\n" + RESPONSE),
        (LLAMA, "call<|eot_id|>", "<|h|>ipython\n\n4<|eot_id|><|h|>assistant\n\n"),
        (LLAMA, "call<|eom_id|>", "<|h|>ipython\n\n4<|eot_id|><|h|>assistant\n\n"),
        (None, "call", "4"),
        (None, "call<|im_end|>", "4"),
    ],
)
def test_what_the_template_has_between_two_turns(template, reply, found):
    assert suffix(template, reply) == found


def test_several_messages_and_one_that_looks_like_our_mark():
    messages = (
        Message("tool", "1"),
        Message("user", "go on \u2713reply\u2713 \u2713reply\u2713\u2713"),
    )
    text = suffix(QWEN, "x<|im_end|>", messages)
    assert text == (
        "\n<|im_start|>user\n<tool_response>\n1\n</tool_response><|im_end|>\n"
        "<|im_start|>user\ngo on \u2713reply\u2713 \u2713reply\u2713\u2713<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_the_whole_is_the_template_s_own_where_it_keeps_turns():
    tok, made = renderer(LLAMA)
    said = [{"role": "user", "content": "2+2?"}]
    ids = list(made.render(PROBLEM))
    for reply in ("call", "again"):
        reply_ids = [
            *tok(reply, add_special_tokens=False)["input_ids"],
            SPECIAL.index("<|eot_id|>"),
        ]
        ids += [*reply_ids, *made.suffix_ids(PROBLEM, reply_ids, TOOL)]
        said += [{"role": "assistant", "content": reply}, {"role": "tool", "content": "4"}]
    whole = tok.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
    assert tok.decode(ids) == whole
    assert ids == tok(whole, add_special_tokens=False)["input_ids"]


def test_a_template_without_the_role_is_an_error_that_says_so():
    with pytest.raises(DataError, match="no tool role"):
        suffix(NO_TOOLS, "call")


def test_a_template_that_forgets_the_reply_is_refused():
    with pytest.raises(DataError, match="leaves out what the model said") as error:
        suffix(FORGETFUL, "call")
    assert "speak as 'user'" in str(error.value)


def test_tools_reach_the_template_and_nothing_else():
    tool = {"type": "function", "function": {"name": "get"}}
    problem = Problem("p", (Message("user", "2+2?"),), "v", {}, "toy", tools=(tool,))
    _, made = renderer(QWEN)
    assert '"name": "get"' in made.text(problem)
    assert suffix(QWEN, "call<|im_end|>", problem=problem) == "\n" + RESPONSE
    raw = Problem("p", "2+2?", "v", {}, "toy", tools=(tool,))
    with pytest.raises(DataError, match="which only a chat template tells"):
        renderer()[1].text(raw)


def test_prompt_and_suffix_are_of_the_problem_as_its_environment_shows_it():
    def present(problem):
        return Problem("p", (Message("user", "shown"),), "v", {}, "toy")

    tok, _ = renderer(QWEN)
    made = Renderer(tok, PromptSection(), present)
    assert made.text(PROBLEM) == "<|im_start|>user\nshown<|im_end|>\n<|im_start|>assistant\n"
    assert tok.decode(list(made.suffix_ids(PROBLEM, [], TOOL))) == "<|im_end|>\n" + RESPONSE
