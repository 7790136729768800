"""Engine openai: requests, their order, their faults."""

import threading
import time

import pytest
import torch

from rlvr_checks.openai.engine import OpenAIEngine
from rlvr_core.api import (
    ConfigError,
    EngineContext,
    GenerationRequest,
    MachineError,
    Message,
    RunError,
    SamplingParams,
)
from rlvr_core.toolkit import PromptSection

pytestmark = pytest.mark.usefixtures("short_waits")


def start(server, **options):
    engine = OpenAIEngine(OpenAIEngine.Config(base_url=server.url, **options))
    engine.start(EngineContext("openai:org/m", None, None, torch.float32, 0, 0))
    return engine


QUESTION = (Message("user", "?"),)


def request(number=0, seeds=(7,), turns=QUESTION, **params):
    return GenerationRequest(f"p{number}", (), SamplingParams(**params), tuple(seeds), turns)


def generate(engine, *requests, timeout=120):
    futures = [engine.submit(request) for request in requests]
    engine.drain(timeout)
    engine.close()
    return futures


def one(server, good_body, asked, **options):
    server.script = [good_body]
    (future,) = generate(start(server, **options), asked)
    return future.result()[0]


def test_options_of_a_chat_template_are_the_servers(server):
    section = PromptSection(template_options={"enable_thinking": False})
    with pytest.raises(ConfigError, match="the server has its own"):
        start(server).renderer(section, present=lambda problem: problem)


def test_a_chat_as_it_is_sent(server):
    turns = (Message("system", "Be short."), Message("user", "2+2?"))
    params = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 44, "stop": ("\n\n",)}
    (future,) = generate(start(server), request(turns=turns, seeds=(2**62 + 5,), **params))
    (found,) = future.result()
    assert server.paths == ["/v1/chat/completions"]
    assert server.bodies == [
        {
            "model": "org/m",
            "messages": [
                {"role": "system", "content": "Be short."},
                {"role": "user", "content": "2+2?"},
            ],
            "max_tokens": 44,
            "temperature": 0.5,
            "top_p": 0.9,
            "seed": 5,
            "stop": ["\n\n"],
        }
    ]
    assert (found.text, found.finish_reason, found.token_ids) == ("fine", "stop", ())
    assert found.usage.completion_tokens == 3


def test_raw_text_as_it_is_sent(server):
    (future,) = generate(start(server, api="completions"), request(temperature=0.0))
    assert server.paths == ["/v1/completions"]
    assert server.bodies[0]["prompt"] == "?"
    assert "messages" not in server.bodies[0]
    assert "seed" not in server.bodies[0]  # greedy has none
    assert future.result()[0].text == "fine"


def test_settings_a_server_refuses_are_left_out(server):
    options = {"omit": ["temperature", "top_p"], "max_tokens_field": "max_completion_tokens"}
    generate(start(server, **options), request(max_tokens=9, temperature=0.0))
    assert set(server.bodies[0]) == {"model", "messages", "max_completion_tokens"}


def test_a_vllm_server_does_not_fill_in_the_generation_config_of_its_model(server):
    server.models = [{"id": "org/m", "owned_by": "vllm"}]
    generate(start(server), request(seeds=(2**62 + 5,)))
    body = server.bodies[0]
    assert (body["top_k"], body["min_p"], body["repetition_penalty"]) == (-1, 0.0, 1.0)
    assert body["include_stop_str_in_output"] is True
    assert body["seed"] == 2**62 + 5


def test_each_sample_has_its_seed_and_its_place(server, good):
    server.then = lambda body: (time.sleep(0.01 * (9 - body["seed"])), good(str(body["seed"])))[1]
    requests = [request(i, seeds=(3 * i, 3 * i + 1, 3 * i + 2)) for i in range(3)]
    futures = generate(start(server, concurrency=9), *requests)
    assert [[one.text for one in future.result()] for future in futures] == [
        ["0", "1", "2"],
        ["3", "4", "5"],
        ["6", "7", "8"],
    ]


def test_no_more_requests_at_a_time_than_allowed(server, good):
    together = threading.Barrier(3)
    server.then = lambda _: (together.wait(60), good())[1]  # answers only when three are there
    futures = generate(start(server, concurrency=3), *map(request, range(21)), timeout=120)
    assert all(future.result()[0].text == "fine" for future in futures)
    assert server.most == 3


@pytest.mark.parametrize(
    ("text", "reason", "stops", "found", "ended"),
    [
        ("abc", "length", (), "abc", "length"),
        ("abc", "stop", ("X",), "abc", "stop"),
        ("abcXdef", "stop", ("X",), "abcX", "stop"),  # a server that knows no stop strings
        ("abcXdef", "length", ("ef", "X"), "abcX", "stop"),
        (None, "length", (), "", "length"),  # all of it went into reasoning
    ],
)
def test_how_answers_end(server, good, text, reason, stops, found, ended):
    got = one(server, good(text, reason), request(stop=stops))
    assert (got.text, got.finish_reason) == (found, ended)


def test_what_the_filter_took_is_no_answer_unless_it_is_to_be_one(server, good):
    body = good("", "content_filter")
    with pytest.raises(RunError, match="filter took the answer"):
        one(server, body, request())
    assert one(server, body, request(), content_filter="answer").text == ""


@pytest.mark.parametrize("reason", ["abort", "tool_calls", "weird"])
def test_t20_other_ends_are_no_answers(server, good, reason):
    with pytest.raises(RunError, match=f"ended by '{reason}'"):
        one(server, good("half", reason), request())


def test_one_prompt_that_is_too_long_does_not_stop_the_others(server, good):
    long = (400, {}, {"error": {"message": "maximum context length is 9 tokens"}})
    server.then = lambda body: long if "LONG" in str(body) else good()
    requests = [request(i, turns=(Message("user", "LONG" if i == 2 else "?"),)) for i in range(9)]
    futures = generate(start(server, concurrency=2), *requests)
    with pytest.raises(RunError, match=r"request p2: .*maximum context length") as caught:
        futures[2].result()
    assert "longer context" in str(caught.value)
    assert sum(future.exception() is None for future in futures) == 8


@pytest.mark.parametrize(
    ("status", "told"), [(401, "engine.with.api_key_env"), (404, "asked for 'org/m'; the server")]
)
def test_what_all_requests_would_meet_stops_them_at_once(server, status, told):
    server.then = lambda _: status
    futures = generate(start(server, concurrency=1), *map(request, range(50)))
    for future in futures:
        with pytest.raises(RunError, match=f"HTTP {status}") as caught:
            future.result()
        assert told in str(caught.value)
    assert len(server.bodies) == 1


def test_a_server_that_answers_nothing_any_more_is_given_up(server, good):
    server.script = [good()] * 3
    server.then = lambda _: 503
    futures = generate(start(server, concurrency=1, retries=1), *map(request, range(50)))
    assert [future.exception() is None for future in futures] == [True] * 3 + [False] * 47
    assert len(server.bodies) == 3 + 5 * 2
    assert "run the same command again" in str(futures[-1].exception())


def test_faults_now_and_then_stop_nothing(server, good):
    server.script = [good() if i % 3 else 500 for i in range(60)]
    futures = generate(start(server, concurrency=1, retries=0), *map(request, range(60)))
    assert sum(future.exception() is None for future in futures) == 40


def test_drain_keeps_its_deadline_and_nothing_is_asked_afterwards(server):
    server.then = lambda _: "hang"
    engine = start(server, concurrency=2)
    futures = [engine.submit(request(i)) for i in range(5)]
    while len(server.bodies) < 2:
        time.sleep(0.01)
    with pytest.raises(RunError, match="5 requests were left"):
        engine.drain(0.5)
    for future in futures:
        with pytest.raises(RunError, match=r"not finished within 0\.5 s"):
            future.result(0)
    engine.close()
    assert len(server.bodies) == 2


def test_nobody_there_is_said_before_anything_is_asked(server):
    server.close()
    with pytest.raises(MachineError, match="no connection") as caught:
        start(server)
    assert "is the server running" in str(caught.value)


def test_the_key_is_tried_before_anything_is_asked(server):
    server.models = (401, {}, {"error": {"message": "Unauthorized"}})
    with pytest.raises(MachineError, match="401: Unauthorized") as caught:
        start(server)
    assert "engine.with.api_key_env" in str(caught.value)


def test_a_server_without_a_list_of_models_will_do(server):
    for models in (404, (200, {}, b"hello"), {"data": "?"}, 500):
        server.models = models
        (future,) = generate(start(server), request())
        assert future.result()[0].text == "fine"
