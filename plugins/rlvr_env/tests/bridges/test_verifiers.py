"""Environments of the package verifiers inside rlvr, and the other way."""

from __future__ import annotations

import asyncio
import json
import pickle
import signal
from pathlib import Path

import pytest

from rlvr_core.api import (
    Completion,
    ConfigError,
    DataError,
    Done,
    Message,
    NoConfig,
    Problem,
    Reply,
)
from rlvr_env.bridges.inside import Conversations, GroupRubric, Rows, Rubric


@pytest.fixture(autouse=True)
def environments(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "envs"))


def problems(kind, **options):
    config = Rows.Config(environment="toy-envs", arguments={"kind": kind}, **options)
    return list(Rows(config).load())


def said(*texts):
    return [Completion.from_text(text) for text in texts]


def test_rows_and_rubric_of_a_single_turn():
    handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    one, two, _ = problems("single")
    assert two.id == "toy-envs_train_1"
    assert two.prompt == (Message("system", "Add."), Message("user", "1+1="))
    assert (two.verifier, two.environment) == ("env/verifiers", None)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers
    rubric = Rubric(NoConfig())
    rubric.check(two)
    right, wrong, crash = (rubric.verify(two, answer) for answer in said("2", "15", "crash"))
    assert (right.score, right.passed) == (1.0, True)
    assert right.parts == {"exact": 1.0, "brief": 2.0, "num_turns": 1.0}
    assert (wrong.score, wrong.passed, wrong.parts["brief"]) == (0.0, False, 1.5)
    assert (crash.score, crash.status) == (None, "error")
    assert crash.detail == "exact: ValueError: no such answer"
    assert rubric.verify(one, said("0")[0]).score == 1.0
    with pytest.raises(DataError, match="problems of the data set env/verifiers alone"):
        rubric.check(Problem("x", "p", "env/verifiers", {}, "toy"))
    assert [p.id for p in problems("single", split="eval", count=1)] == ["toy-envs_eval_0"]


def test_a_rubric_that_compares_gets_the_whole_group():
    _, two, _ = problems("group")
    assert two.verifier == "env/verifiers-group"
    verdicts = GroupRubric(NoConfig()).verify_group(two, said("long one", "ab", "cd"))
    assert [verdict.score for verdict in verdicts] == [0.0, 1.0, 1.0]


def play(world, problem, *texts):
    """What the world says to each turn; its state goes through pickle, as between processes."""
    state = world.start(problem, 0)
    answers = []
    for turn, text in enumerate(texts):
        state = pickle.loads(pickle.dumps(state))
        answers.append(world.step(state, Reply(text, turn, 9)))
    return answers, state


def test_a_conversation_is_answered_and_scored():
    _, _, three = problems("guess")
    assert (three.verifier, three.environment) == ("env/environment", "env/verifiers")
    world = Conversations(Conversations.Config())
    assert world.present(three).tools == ()
    (low, high, done), _ = play(world, three, "3", "9", "4")
    assert low.messages == (Message("user", "higher"),)
    assert high.messages == (Message("user", "lower"),)
    assert isinstance(done, Done)
    assert done.verdict.score == pytest.approx(1 / 3)
    assert done.verdict.parts["num_turns"] == 3
    answers, _ = play(world, three, "1", "2", "3", "2")
    assert isinstance(answers[-1], Done)  # its own limit of four turns
    _, state = play(world, three, "1", "2")
    assert world.cut(state, "max_turns").score == 0.5


def test_tools_are_run():
    _, two, _ = problems("tools")
    world = Conversations(Conversations.Config())
    shown = world.present(two)
    assert shown.tools[0]["function"]["name"] == "add"
    assert set(shown.tools[0]["function"]["parameters"]["properties"]) == {"a", "b"}
    call = '<tool_call>{"name": "add", "arguments": {"a": 1, "b": 1}}</tool_call>'
    unknown = call.replace('"add"', '"sub"')
    (broken, missing, told, done), _ = play(
        world, two, "<tool_call>{</tool_call>", unknown, call, "2"
    )
    assert broken.messages[0].content.startswith("error: ")
    assert "sub" in missing.messages[0].content
    assert told.messages == (Message("tool", "2"),)
    assert done.verdict.score == 1.0
    assert done.verdict.parts["add_calls"] == 1.0
    assert done.verdict.parts["total_tool_calls"] == 2.0


def test_what_cannot_be_loaded_is_named():
    with pytest.raises(ConfigError, match=r"'no-such-env' cannot be loaded.*no_such_env"):
        list(Rows(Rows.Config(environment="no-such-env")).load())
    with pytest.raises(ConfigError, match=r"ValueError: no kind other"):
        problems("other")


class Scripted:
    """Makes clients of verifiers that write given turns."""

    def __new__(cls, *turns):
        from verifiers.types import Response, ResponseMessage

        from rlvr_env.bridges.rollout import NoModel

        class Client(NoModel):
            async def get_response(self, prompt, model, sampling_args, tools=None, **kwargs):
                self.prompts.append(prompt)
                said = turns[len(self.prompts) - 1]
                given = {"content": said} if isinstance(said, str) else said
                message = ResponseMessage(finish_reason="stop", is_truncated=False, **given)
                return Response(id="r", created=0, model=model, message=message)

        client = Client()
        client.prompts = []
        return client


def rollouts(env, client, rows):
    """Rollouts of the first rows, one after the other, as verifiers makes and scores them."""
    from rlvr_core.script.train import signals_restored

    async def each():
        states = []
        for row in env.get_dataset(rows):
            state = await env.rollout(row, client, "scripted")
            await env.rubric.score_rollout(state)
            states.append(state)
        return states

    with signals_restored():
        return asyncio.run(each())


def test_a_data_set_and_its_verifier_become_a_single_turn_environment(tmp_path):
    import verifiers as vf

    from rlvr_env.bridges.verifiers import verifiers_environment

    (tmp_path / "rows.jsonl").write_text(
        '{"id": "a", "q": "1+1=", "answer": "2"}\n{"id": "b", "q": "2+2=", "answer": "4"}\n'
    )
    options = {"path": str(tmp_path / "rows.jsonl"), "prompt": "q", "verifier": "core/exact"}
    env = verifiers_environment("core/jsonl", options)
    assert type(env) is vf.SingleTurnEnv
    assert env.get_dataset()[1]["prompt"] == [{"role": "user", "content": "2+2="}]
    assert env.get_dataset()[1]["answer"] == "4"
    client = Scripted("2", "5")
    right, wrong = rollouts(env, client, 2)
    assert (right["reward"], wrong["reward"]) == (1.0, 0.0)
    assert client.prompts[0][-1].content == "1+1="
    assert right["metrics"] == {"score": 1.0, "unscored": 0.0, "num_turns": 1.0}

    (tmp_path / "mine.py").write_text("def mine(text):\n    raise ValueError(text)\n")
    env = verifiers_environment("core/jsonl", options, verifier=f"{tmp_path}/mine.py:mine", count=1)
    assert len(env.get_dataset()) == 1
    (state,) = rollouts(env, Scripted("2"), 1)
    assert (state["reward"], state["metrics"]["unscored"]) == (0.0, 1.0)
    with pytest.raises(DataError, match=r"core/exact cannot judge (?s:.*)answer"):
        verifiers_environment("core/jsonl", {**options, "spec": ["id"]})


def test_an_environment_is_played_with_its_tools():
    from rlvr_env.bridges.verifiers import verifiers_environment
    from rlvr_env.environments.lookup import LookupWorld

    env = verifiers_environment("env/lookup", count=2)
    _, second = env.get_dataset()
    name = second["prompt"][0]["content"].removeprefix("How many ").removesuffix("?")
    from verifiers.types import ToolCall

    problem = json.loads(second["info"])["problem"]
    number = (
        LookupWorld(NoConfig())
        .start(Problem("x", "p", "v", problem["spec"], "d"), second["example_id"])
        .number(name)
    )
    call = ToolCall(id="c7", name="count", arguments=json.dumps({"of": name}))
    client = Scripted("0", {"content": None, "tool_calls": [call]}, str(number))
    guessed, looked = rollouts(env, client, 2)
    assert (guessed["reward"], looked["reward"]) == (0.0, 1.0)
    assert str(number) in looked["completion"][1].content
    assert looked["completion"][1].tool_call_id == "c7"
    assert looked["metrics"]["num_turns"] == 2.0
