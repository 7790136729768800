"""``env/agent``: programs that know OpenAI's client alone, their tokens exact."""

import sys
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from rlvr_core.api import EngineTraits, Generation, GenerationRequest, Problem, SamplingParams
from rlvr_core.config.model import EnvironmentSection, PromptSection
from rlvr_core.data.prompts import Renderer
from rlvr_core.plugins.host import load_host
from rlvr_env.environments.plan import EnvironmentPlan

TEMPLATE = (
    "{% for m in messages %}<|s|>{{ m['role'] }}:{{ m['content'] }}"
    "{% for call in m['tool_calls'] or [] %}!{{ call['function']['name'] }}{% endfor %}<|e|>"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|s|>assistant:{% endif %}"
)
PROBLEM = Problem("p", "hi", "core/exact", {"answer": "ab"}, "d")


@pytest.fixture(scope="module")
def tokenizer():
    """Letters and one merge, ``ab``: what samples it as two tokens must keep two."""
    letters = [chr(code) for code in range(32, 127)]
    vocab = {letter: index for index, letter in enumerate(letters)} | {"ab": 95, "\n": 96}
    made = Tokenizer(models.BPE(vocab, [("a", "b")]))
    made.pre_tokenizer = pre_tokenizers.Split("\n", "isolated")
    made.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|e|>", bos_token="<|s|>")
    fast.chat_template = TEMPLATE
    return fast


class Speaks:
    """An engine that says given texts letter by letter, and then ends its turn."""

    traits = EngineTraits(continuous=True)

    def __init__(self, tokenizer, *texts):
        self.tokenizer, self.texts = tokenizer, list(texts)
        self.prompts, self.seeds = [], []

    def start(self, context):
        pass

    def submit(self, request):
        self.prompts.append(self.tokenizer.decode(request.prompt_ids))
        self.seeds += request.seeds
        text = self.texts[len(self.prompts) - 1]
        whole = (*self.tokenizer.convert_tokens_to_ids(list(text)), self.tokenizer.eos_token_id)
        ids = whole[: request.params.max_tokens]
        future = Future()
        reason = "stop" if ids == whole else "length"
        made = Generation(ids, (-0.5,) * len(ids), text[: len(ids)], reason, 0)
        future.set_result((made,) * len(request.seeds))
        return future

    def drain(self, timeout=None):
        pass

    def close(self):
        pass


@pytest.fixture
def played(tokenizer, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))

    def play(*texts, agent="plain", command=None, **section):
        given = {"command": command} if command else {"function": f"agent_toys:{agent}"}
        section = {"use": "env/agent", "with": given, "straggler_timeout": 0, **section}
        host = load_host()
        plan = EnvironmentPlan.build(EnvironmentSection.model_validate(section), [PROBLEM], host)
        renderer = Renderer(tokenizer, PromptSection(chat_template="always"), plan.present)
        engine = Speaks(tokenizer, *texts)
        player = plan.play(engine, renderer.suffix_ids, background=False)
        player.start(SimpleNamespace(tokenizer=tokenizer))
        prompt = renderer.prompt(PROBLEM)
        params = SamplingParams(max_tokens=300)
        try:
            asked = GenerationRequest("r", prompt.ids, params, (5,), (), PROBLEM, 1)
            future = player.submit(asked)
            player.drain(120)
            (one,) = future.result()
        finally:
            player.close()
        return one, engine

    return play


def pieces(tokenizer, one):
    """Texts of what was sampled and what was not, in turn."""
    found, mask = [], None
    for token, sampled in zip(one.token_ids, one.loss_mask, strict=True):
        if sampled != mask:
            found.append((sampled, []))
            mask = sampled
        found[-1][1].append(token)
    return [(sampled, tokenizer.decode(ids)) for sampled, ids in found]


@pytest.mark.parametrize("agent", ["plain", "streaming"])
def test_what_was_sampled_is_never_tokenised_again(played, tokenizer, agent):
    one, engine = played("ab", "ba", agent=agent)
    assert one.transcript.ended == "done"
    assert one.text == "ba"
    a, b, end = *tokenizer.convert_tokens_to_ids(["a", "b"]), tokenizer.eos_token_id
    assert one.token_ids[:3] == (a, b, end)  # not the one token 'ab'
    assert pieces(tokenizer, one) == [
        (True, "ab<|e|>"),
        (False, "<|s|>user:more<|e|><|s|>assistant:"),
        (True, "ba<|e|>"),
    ]
    first = "<|s|>user:hi<|e|><|s|>assistant:"
    assert engine.prompts == [first, first + "ab<|e|><|s|>user:more<|e|><|s|>assistant:"]
    assert [logp for logp, own in zip(one.logprobs, one.loss_mask, strict=True) if own] == [
        -0.5
    ] * 6
    assert "untrained_tokens" not in one.transcript.counts


def test_histories_that_are_not_one_are_branches_kept_apart(played, tokenizer):
    one, engine = played("ab", "x", "cd", "e", agent="editing")
    assert one.transcript.ended == "done"
    begin = "<|s|>user:hi<|e|><|s|>assistant:"
    assert engine.prompts == [
        begin,
        "<|s|>user:aside<|e|><|s|>assistant:",
        begin + "ab<|e|><|s|>user:more<|e|><|s|>assistant:",
        begin + "b<|e|><|s|>user:so<|e|><|s|>assistant:",
    ]
    assert len(set(engine.seeds)) == 4
    # the last branch that begins with the prompt is the completion; nothing of another is in it
    assert pieces(tokenizer, one) == [
        (False, "b<|e|><|s|>user:so<|e|><|s|>assistant:"),
        (True, "e<|e|>"),
    ]
    assert one.transcript.counts["branches"] == 2
    assert len(one.token_ids) == sum(turn.n_tokens for turn in one.transcript.turns)
    # the others are rows of their own
    assert [tokenizer.decode(row.prompt_ids) for row in one.branches] == engine.prompts[:2]
    assert [pieces(tokenizer, row) for row in one.branches] == [
        [
            (True, "ab<|e|>"),
            (False, "<|s|>user:more<|e|><|s|>assistant:"),
            (True, "cd<|e|>"),
        ],
        [(True, "x<|e|>")],
    ]
    assert [turn.text for turn in one.branches[1].transcript.turns] == ["aside", "x"]


def user(text):
    return False, f"<|s|>user:{text}<|e|><|s|>assistant:"


def reply(text):
    return True, f"{text}<|e|>"


def context(text, *behind):
    """A reply that another row trains, and what was said behind it."""
    return False, f"{text}<|e|>" + "".join(said for _, said in behind)


CALL = '<tool_call>{"name": "get", "arguments": {"key": "%s"}}</tool_call>'
AGENTS = {
    "linear": (
        ["ab", "b", "c"],
        [reply("ab"), user("more"), reply("b"), user("on"), reply("c")],
    ),
    "retrying": (
        ["ab", "b", "c"],
        [reply("ab"), user("more"), reply("c")],
        [context("ab", user("more")), reply("b")],
    ),
    "tree": (
        ["ab", "b", "c", "d"],
        [reply("ab"), user("z"), reply("d")],
        [context("ab", user("x")), reply("b")],
        [context("ab", user("y")), reply("c")],
    ),
    "delegating": (
        ["ab", "ab", "c", "d"],
        [reply("ab"), user("so"), reply("d")],
        [reply("ab"), user("more"), reply("c")],
    ),
    "summarising": (
        ["ab", "ab", "c", "d"],
        # the prompt of the problem ends with the beginning of a reply, which a summary does not:
        # this history begins otherwise
        [reply("ab"), user("more"), reply("ab")],
        [reply("c"), user("on"), reply("d")],
    ),
    "shortening": (
        [CALL % "a", CALL % "b", "c", "ab", "e"],
        # the second reply stands behind another result: it is context as the program sent it
        [
            reply(CALL % "a"),
            (False, "<|s|>tool:long long<|e|><|s|>assistant:"),
            reply(CALL % "b"),
            (False, "<|s|>tool:b<|e|><|s|>assistant:"),
            reply("c"),
        ],
        [
            (
                False,
                f"{CALL % 'a'}<|e|><|s|>tool:long<|e|><|s|>assistant:{CALL % 'b'}<|e|>"
                "<|s|>tool:b<|e|><|s|>assistant:c<|e|><|s|>user:on<|e|><|s|>assistant:",
            ),
            reply("ab"),
            user("end"),
            reply("e"),
        ],
    ),
}
"""What the model says, and the rows that this must be trained as, by agent."""


@pytest.mark.parametrize("agent", AGENTS)
def test_every_sampled_token_is_in_the_loss_of_one_row(played, tokenizer, agent):
    texts, *rows = AGENTS[agent]
    one, engine = played(*texts, agent=agent)
    assert one.transcript.ended == "done", one.transcript.detail
    assert len(engine.prompts) == len(texts)
    found = [one, *one.branches]
    assert sorted(pieces(tokenizer, row) for row in found) == sorted(rows)
    # every letter is a token of its own, the two of "ab" in a context too: never tokenised again
    assert sum(sum(row.loss_mask) for row in found) == sum(len(text) + 1 for text in texts)


def test_a_limit_in_a_branch_that_is_not_judged(played):
    """The sub-agent's turn fills its five tokens; the reply before it was whole."""
    one, _ = played("ab", "abcde", agent="delegating", max_turn_tokens=5)
    (branch,) = one.branches
    assert (one.transcript.ended, one.finish_reason, one.text) == ("turn_length", "length", "ab")
    assert (branch.transcript.ended, branch.finish_reason) == ("turn_length", "length")
    assert one.transcript.verdict.score == 0


def test_a_prompt_of_its_own_counts_in_the_length_of_a_branch(played):
    """Prompt and 300 tokens are the most, and the sub-agent's prompt is longer than that."""
    one, engine = played("ab", "c", agent="wordy")
    assert (one.transcript.ended, one.text, one.branches) == ("budget", "ab", ())
    assert len(engine.prompts) == 1


def test_where_one_branch_is_asked_for_another_ends_the_conversation(played):
    one_only = {"function": "agent_toys:editing", "branches": "one"}
    one, engine = played("ab", "x", "cd", "e", **{"with": one_only})
    assert one.transcript.ended == "error"
    assert one.finish_reason == "error"
    assert "is not what was said so far, of 1 messages with 'aside'" in one.transcript.detail
    assert len(engine.prompts) == 1  # the aside was not played
    growing = {"function": "agent_toys:plain", "branches": "one"}
    one, _ = played("ab", "ba", **{"with": growing})
    assert (one.transcript.ended, one.text) == ("done", "ba")


def test_a_tool_of_the_program_is_called_in_the_models_own_format(played, tokenizer):
    call = '<tool_call>{"name": "get", "arguments": {"key": "a"}}</tool_call>'
    one, _ = played(call, "ba", agent="calling")
    assert one.transcript.ended == "done", one.transcript.detail
    assert pieces(tokenizer, one)[1:] == [
        (False, "<|s|>tool:ba<|e|><|s|>assistant:"),
        (True, "ba<|e|>"),
    ]


def test_a_program_is_told_the_numbers_of_tokens(played, tokenizer):
    one, _ = played("ab", "cde", agent="counting")
    assert one.transcript.ended == "done", one.transcript.detail
    from agent_toys import USAGES  # imported by the environment by now

    first, second = USAGES
    # letters are tokens, but for the two special ones; "ab" was sampled as two, and an end
    assert (first.prompt_tokens, first.completion_tokens, first.total_tokens) == (
        len("Suser:hiESassistant:"),
        3,
        len("Suser:hiESassistant:") + 3,
    )
    assert second.prompt_tokens == first.total_tokens + len("Suser:moreESassistant:")
    assert second.completion_tokens == 4
    assert second.total_tokens == first.prompt_tokens + len(one.token_ids)


@pytest.mark.parametrize(
    ("agent", "detail"),
    [
        ("other_prompt", "does not begin with the prompt of the problem"),
        ("failing", "RuntimeError: the agent is broken"),
    ],
)
def test_a_program_that_fails_is_no_reward(played, agent, detail):
    one, _ = played("ab", agent=agent)
    assert one.transcript.ended == "error"
    assert detail in one.transcript.detail


def test_a_conversation_cut_off_ends_its_program(played):
    one, _ = played("ab", "ba", max_turns=1)
    assert one.transcript.ended == "max_turns"


def test_a_command_finds_the_endpoint_in_its_environment(played):
    program = str(Path(__file__).with_name("agent_toys.py"))
    one, _ = played("ab", "ba", command=[sys.executable, program], timeout=120)
    assert one.transcript.ended == "done", one.transcript.detail
    assert [turn.text for turn in one.transcript.turns] == ["ab", "more", "ba"]


def test_a_command_that_fails_says_why(played):
    code = "import sys; sys.exit('no luck')"
    one, _ = played("ab", command=[sys.executable, "-c", code], timeout=120)
    assert one.transcript.ended == "error"
    assert "ended with code 1: no luck" in one.transcript.detail
