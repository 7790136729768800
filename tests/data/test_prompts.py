import json

import pytest
from pydantic import ValidationError

from rlvr_core.api import ConfigError, DataError, Message, Problem, Source
from rlvr_core.config.model import PromptSection
from rlvr_core.data.load import audit
from rlvr_core.data.prompts import Renderer
from tests.support.tokenizers import byte_tokenizer

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<s>", "</s>"]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ALTERNATING = (
    "{% for m in messages %}{% if m.role not in ['user', 'assistant'] %}"
    "{{ raise_exception('only user and assistant') }}{% endif %}"
    "[{{ m.role }}] {{ m.content }}</s>{% endfor %}"
)
UNCLOSED = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "


def tokenizer(template=None, eos="<|endoftext|>", bos=None, name="some-model", ends=None):
    made = byte_tokenizer(SPECIAL, eos, bos, ends=ends)
    made.chat_template = template
    made.name_or_path = name
    return made


def problem(prompt="2+2?", id_="p1"):
    return Problem(id_, prompt, "core/exact", {}, "toy")


def rendered(tok, prompt="2+2?", **section):
    renderer = Renderer(tok, PromptSection(**section))
    return tok.decode(renderer.render(problem(prompt)))


CHAT = (Message("user", "2+2?"),)
AS_CHAT = "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n"


def thinking():
    """ChatML whose answers begin with an empty thought, unless thinking is asked for."""
    closed = "{% if enable_thinking is false %}<think></think>{% endif %}"
    return tokenizer(CHATML.replace("assistant\n", f"assistant\n{closed}"), eos="<|im_end|>")


def test_template_options_reach_the_template():
    assert rendered(thinking()) == AS_CHAT
    off = {"template_options": {"enable_thinking": False}}
    assert rendered(thinking(), **off) == f"{AS_CHAT}<think></think>"
    assert rendered(thinking(), prompt=CHAT, **off) == f"{AS_CHAT}<think></think>"
    assert rendered(thinking(), template_options={"enable_thinking": True}) == AS_CHAT


@pytest.mark.parametrize("name", ["enable_thinkin", "think", "false", "role", "messages"])
def test_a_template_option_that_would_be_ignored_is_refused(name):
    with pytest.raises(ConfigError, match=f"template option '{name}'") as error:
        Renderer(thinking(), PromptSection(template_options={name: False}))
    assert "data.prompt.template_options" in str(error.value.complaints)
    meant = "did you mean 'enable_thinking'?" if name.startswith("enable") else "take it out"
    assert error.value.complaints[0].remedy == (meant,)


def test_a_broken_template_that_nobody_renders_is_no_fault():
    broken = tokenizer("{{ messages | nosuch }}")
    assert rendered(broken, chat_template="never") == "2+2?"
    with pytest.raises(ConfigError, match="template option 'enable_thinking'"):
        Renderer(broken, PromptSection(template_options={"enable_thinking": False}))


def test_template_options_without_a_template_are_refused():
    with pytest.raises(ConfigError, match="nowhere in its chat template"):
        Renderer(tokenizer(), PromptSection(template_options={"enable_thinking": False}))
    with pytest.raises(ValidationError, match="no effect with chat_template: never"):
        PromptSection(chat_template="never", template_options={"enable_thinking": False})


def test_template_options_that_text_prompts_do_not_see_are_told():
    options = PromptSection(template_options={"enable_thinking": False})
    base = thinking()
    base.name_or_path = "some/Thing-1B-Base"
    told = "template_options reach only prompts that are chats"
    assert told in Renderer(base, options).describe()
    assert told not in Renderer(base, PromptSection()).describe()
    assert told not in Renderer(thinking(), options).describe()


def test_t37_auto_is_raw_text_without_a_template():
    renderer = Renderer(tokenizer(), PromptSection())
    assert rendered(tokenizer()) == "2+2?"
    assert "raw text" in renderer.describe()
    assert "has no chat template" in renderer.describe()


def test_t37_a_base_model_that_carries_its_familys_template_gets_raw_text():
    # As the Qwen bases do: turns are closed by <|im_end|>, the model stops at <|endoftext|>.
    base = tokenizer(CHATML, eos="<|endoftext|>")
    assert rendered(base) == "2+2?"
    reason = Renderer(base, PromptSection()).describe()
    assert "<|im_end|>" in reason
    assert "<|endoftext|>" in reason


def test_t37_a_chat_model_stops_where_its_template_closes_a_turn():
    chat = tokenizer(CHATML, eos="<|im_end|>")
    assert rendered(chat) == AS_CHAT
    assert "the chat template" in Renderer(chat, PromptSection()).describe()
    assert rendered(tokenizer(ALTERNATING, eos="</s>")) == "[user] 2+2?</s>"


def test_t37_the_generation_config_may_know_more_ends_than_the_tokenizer(tmp_path):
    # As Gemma does: the tokenizer's end is <eos>, the generation config adds <end_of_turn>.
    chat = tokenizer(CHATML, eos="<|endoftext|>", name=str(tmp_path))
    assert rendered(chat) == "2+2?"
    ends = {"eos_token_id": [0, SPECIAL.index("<|im_end|>")]}
    (tmp_path / "generation_config.json").write_text(json.dumps(ends))
    assert rendered(chat) == AS_CHAT


@pytest.mark.parametrize("name", ["Qwen/Qwen3-1.7B-Base", "/models/some_base", "base"])
def test_t37_a_name_that_says_base_is_believed(name):
    tok = tokenizer(CHATML, eos="<|im_end|>", name=name)
    assert rendered(tok) == "2+2?"
    assert "by its name" in Renderer(tok, PromptSection()).describe()
    named = tokenizer(CHATML, eos="<|im_end|>", name="database-chat")
    assert rendered(named) == AS_CHAT


def test_a_template_that_closes_no_turn_is_not_trusted():
    assert rendered(tokenizer(UNCLOSED, eos="<|im_end|>")) == "2+2?"


def test_always_and_never_are_obeyed():
    assert rendered(tokenizer(CHATML), chat_template="always") == AS_CHAT
    assert rendered(tokenizer(CHATML, eos="<|im_end|>"), chat_template="never") == "2+2?"
    with pytest.raises(ConfigError, match="no chat template"):
        Renderer(tokenizer(), PromptSection(chat_template="always"))


def test_chats_need_a_template_even_for_a_base_model():
    assert rendered(tokenizer(CHATML), CHAT) == AS_CHAT
    with pytest.raises(DataError, match=r"p1 is a chat, but .* has no chat template"):
        rendered(tokenizer(), CHAT)


def test_never_takes_the_text_of_a_single_turn_and_refuses_more():
    assert rendered(tokenizer(), CHAT, chat_template="never") == "2+2?"
    with_system = (Message("system", "Add."), *CHAT)
    assert rendered(tokenizer(), with_system, chat_template="never") == "Add.\n\n2+2?"
    turns = (*CHAT, Message("assistant", "4"), Message("user", "5+5?"))
    with pytest.raises(DataError, match="3 turns"):
        rendered(tokenizer(), turns, chat_template="never")


def test_system_and_prefix_go_around_the_prompt():
    said = {"system": "Add.", "prefix": "The answer is"}
    assert rendered(tokenizer(), **said) == "Add.\n\n2+2?The answer is"
    chat = rendered(tokenizer(CHATML, eos="<|im_end|>"), **said)
    assert chat == "<|im_start|>system\nAdd.<|im_end|>\n" + AS_CHAT + "The answer is"


def test_t50_empty_is_a_value_and_absent_is_not():
    chat = tokenizer(CHATML, eos="<|im_end|>")
    assert rendered(chat, system=None) == AS_CHAT
    assert rendered(chat, system="") == "<|im_start|>system\n<|im_end|>\n" + AS_CHAT
    assert rendered(tokenizer(), system="", prefix="") == "2+2?"


def test_t50_a_problem_overrides_the_config_even_with_nothing():
    chat = tokenizer(CHATML, eos="<|im_end|>")
    said = {"system": "Add.", "prefix": "Well,"}
    own = (Message("system", ""), *CHAT, Message("assistant", ""))
    assert rendered(chat, own, **said) == "<|im_start|>system\n<|im_end|>\n" + AS_CHAT
    raw = tokenizer()
    assert rendered(raw, own, chat_template="never", **said) == "2+2?"
    begun = (*CHAT, Message("assistant", "It is "))
    assert rendered(chat, begun, prefix="Well,") == AS_CHAT + "It is "


def test_bos_comes_if_the_tokenizer_adds_it_and_eos_never():
    assert rendered(tokenizer(bos="<s>")) == "<s>2+2?"
    assert rendered(tokenizer(bos="<s>", ends=True)) == "<s>2+2?"
    assert rendered(tokenizer()) == "2+2?"
    assert rendered(tokenizer(bos="<s>"), "<s>2+2?") == "<s>2+2?"
    assert rendered(tokenizer(bos="<s>"), CHAT, chat_template="never") == "<s>2+2?"
    chat = tokenizer(CHATML, eos="<|im_end|>", bos="<s>")
    assert rendered(chat) == AS_CHAT  # the template would say it if it wanted one


def test_a_template_that_refuses_a_problem_is_a_data_error():
    said = (Message("tool", "x"), *CHAT)
    with pytest.raises(DataError, match=r"refuses problem p1 \(roles tool, user\): only user"):
        rendered(tokenizer(ALTERNATING), said)


def test_a_prompt_of_no_tokens_is_an_error():
    with pytest.raises(DataError, match="p1 has no tokens"):
        rendered(tokenizer(), "")


def sources(*lengths, name="toy"):
    problems = tuple(problem("x" * n, f"{name}{i}") for i, n in enumerate(lengths))
    return Source(name, problems, 2.0)


def test_t34_overlong_prompts_are_taken_out_counted_and_named():
    renderer = Renderer(tokenizer(), PromptSection())
    kept, report = audit([sources(3, 9, 5, 4), sources(5, name="b")], renderer, 5, 0.2)
    assert [p.id for p in kept[0].problems] == ["toy0", "toy2", "toy3"]
    assert (kept[0].name, kept[0].weight) == ("toy", 2.0)
    assert [p.id for p in kept[1].problems] == ["b0"]
    assert [source.left_out for source in kept] == [("toy1",), ()]
    assert report.overlong == (("toy1", 9),)
    assert (report.total, report.longest, report.median) == (5, 5, 5)
    assert "1 of 5 prompts (20.0%)" in report.lines[1]
    assert "toy1 (9 tokens)" in report.lines[1]


def test_t34_too_many_overlong_prompts_are_an_error():
    renderer = Renderer(tokenizer(), PromptSection())
    with pytest.raises(DataError, match="2 of 5 prompts of toy are longer than 4 tokens, up to 9"):
        audit([sources(3, 9, 5, 4, 1)], renderer, 4, 0.39)
    with pytest.raises(DataError, match="nothing would be left of b"):
        audit([sources(*[1] * 99), sources(9, name="b")], renderer, 4, 0.5)


def test_t34_nothing_overlong_is_said_in_one_line():
    kept, report = audit([sources(1, 2, 3)], Renderer(tokenizer(), PromptSection()), 3, 0.0)
    assert len(kept[0].problems) == 3
    assert report.lines == ("prompt lengths: median 2 tokens, longest 3",)
