"""Requests that go wrong in every way a server can think of."""

import json
import time
from email.utils import formatdate

import pytest
from pydantic import ValidationError

from rlvr_checks.openai.client import Client, RemoteError
from rlvr_checks.openai.config import Endpoint, Price
from rlvr_core.api import ConfigError, Usage
from tests.support.tables import table

pytestmark = pytest.mark.usefixtures("short_waits")


def client(server, **options):
    return Client(Endpoint(base_url=server.url, **options), "m")


def ask(server, **options):
    return client(server, **options).chat([{"role": "user", "content": "?"}], {"max_tokens": 5})


def fails(server, **options):
    with pytest.raises(RemoteError) as caught:
        ask(server, **options)
    return caught.value


def test_what_is_sent_and_what_comes_back(server):
    reply = ask(server, price={"input": 2.0, "output": 8.0}, extra={"reasoning_effort": "low"})
    assert server.paths == ["/v1/chat/completions"]
    assert server.bodies == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": "?"}],
            "max_tokens": 5,
            "reasoning_effort": "low",
        }
    ]
    assert (reply.text, reply.finish_reason) == ("fine", "stop")
    usage = reply.usage
    assert (usage.requests, usage.prompt_tokens, usage.completion_tokens) == (1, 10, 3)
    assert usage.cost == pytest.approx((10 * 2 + 3 * 8) / 1e6)
    assert usage.seconds > 0
    assert "Authorization" not in server.headers[0]


@pytest.mark.parametrize(
    "fault",
    [
        *(408, 409, 425, 429, 500, 502, 503, 504, 529),
        *("cut", "reset"),
        (200, {}, b"<html>busy</html>"),
        (200, {}, b""),
        (200, {}, b'{"choices": []}'),
        (200, {}, b"[" * 100_000),
        (200, {}, b'{"error": {"message": "upstream is tired"}}'),
        (200, {}, b'{"choices": [{"message": {"content": 7}, "finish_reason": "stop"}]}'),
    ],
)
def test_a_fault_that_passes_is_tried_again(server, fault):
    server.script = [fault, fault]
    reply = ask(server)
    assert reply.text == "fine"
    assert reply.usage.requests == 3 == len(server.bodies)


def test_one_that_does_not_pass_is_told_with_all_tries(server):
    server.then = lambda _: 500
    error = fails(server, retries=3)
    assert error.fault == "gave_up"
    assert not error.everyone
    assert str(error) == f"{server.url}: HTTP 500: told 500, at each of 4 tries"
    assert error.usage.requests == 4


@pytest.mark.parametrize(
    ("status", "body", "fault", "everyone"),
    [*table(__file__, "final faults"), (307, b"", "refused", False)],
)
def test_one_that_never_passes_is_not_tried_again(server, status, body, fault, everyone):
    server.script = [(status, {}, body)]
    error = fails(server)
    assert (error.fault, error.everyone, error.usage.requests) == (fault, everyone, 1)
    assert f"HTTP {status}" in str(error)
    assert len(server.bodies) == 1


def test_nobody_there_is_tried_a_few_times_only(server):
    server.close()
    error = fails(server, retries=50)
    assert (error.fault, error.everyone, error.usage.requests) == ("unreachable", True, 4)


def test_a_try_that_hangs_is_given_up_and_another_made(server):
    server.script = ["hang"]
    reply = ask(server, timeout=0.5)
    assert reply.usage.requests >= 2
    assert reply.usage.seconds >= 0.5


@pytest.mark.parametrize("fault", ["hang", "drip"])
def test_no_answer_takes_longer_than_the_deadline(server, fault):
    server.then = lambda _: fault
    error = fails(server, timeout=0.5, deadline=3.0)
    assert error.fault == "timeout"
    assert "within 3 s" in str(error)
    # each of these would go on for five seconds, and leave no time for a second try
    assert error.usage.requests >= 2


@pytest.mark.parametrize(("name", "value"), [("Retry-After", "1.2"), ("retry-after-ms", "1200")])
def test_retry_after_is_honoured(server, name, value):
    server.script = [(429, {name: value}, {})]
    assert ask(server).usage.requests == 2
    assert server.times[1] - server.times[0] >= 1.2


def test_retry_after_may_be_a_date(server):
    until = int(time.time()) + 2  # dates have whole seconds
    server.script = [(503, {"Retry-After": formatdate(until, usegmt=True)}, {})]
    assert ask(server).usage.requests == 2
    assert time.time() >= until


def test_nothing_is_asked_after_the_deadline(server):
    with pytest.raises(RemoteError) as caught:
        client(server).chat([], {}, deadline=time.monotonic())
    assert (caught.value.fault, caught.value.usage.requests) == ("timeout", 0)
    assert server.bodies == []


def test_all_requests_wait_when_the_server_asks_to(server):
    asked = client(server)
    server.script = [(429, {"Retry-After": "1"}, {})]
    asked.ask("/completions", {})
    first = server.times[0]
    asked._not_before = first + 1.5  # as another thread would have set it
    asked.ask("/completions", {})
    assert server.times[2] - first >= 1.5


def test_a_wait_beyond_the_deadline_is_not_waited_for(server):
    server.then = lambda _: (429, {"Retry-After": "3600"}, {"error": {"message": "slow down"}})
    error = fails(server, deadline=30.0, timeout=5)
    assert error.fault == "timeout"
    assert "HTTP 429: slow down, and the next may come in 3600 s" in str(error)
    assert error.usage.requests == 1


def test_the_key_is_sent_and_never_told(server, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-very-secret")
    server.script = [{**json.loads('{"id": "x"}'), "error": "sk-very-secret is bad"}, 500]
    server.then = lambda _: (401, {}, {"error": {"message": "key sk-very-secret is unknown"}})
    error = fails(server, api_key_env="SOME_KEY")
    assert server.headers[0]["Authorization"] == "Bearer sk-very-secret"
    assert "very-secret" not in str(error)
    assert "key *** is unknown" in str(error)


@pytest.mark.parametrize("value", ["", "  ", "two words", "schlüssel", "a\nb"])
def test_a_key_that_is_not_there_or_cannot_be_sent(server, monkeypatch, value):
    monkeypatch.setenv("SOME_KEY", value)
    with pytest.raises(ConfigError, match="SOME_KEY") as caught:
        client(server, api_key_env="SOME_KEY")
    assert not value.strip() or value not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"base_url": "localhost:8000/v1"},
        {"base_url": "ftp://x/v1"},
        {"base_url": "http://user:pass@x/v1"},
        {"base_url": "http://x/v1?key=1"},
        {"base_url": "http://x:99999/v1"},
        {"base_url": "http://x/v1", "extra": {"temperature": 1}},
        {"base_url": "http://x/v1", "timeout": 10, "deadline": 5},
    ],
)
def test_options_that_cannot_be_meant(options):
    with pytest.raises(ValidationError):
        Endpoint(**options)


def test_tokens_that_were_not_counted_cost_nothing_known(server, good):
    body = good()
    del body["usage"]
    server.script = [body]
    usage = ask(server, price={"input": 1, "output": 1}).usage
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cost) == (None, None, None)


def test_sums_of_usage():
    known = Usage(1, 10, 5, 0.5, 0.25)
    assert known + known == Usage(2, 20, 10, 1.0, 0.5)
    assert known + Usage(3, seconds=1.0) == Usage(4, 10, 5, 1.5, 0.25)
    assert Price(input=3, output=15).of(Usage(1, 1_000_000, 100_000)) == pytest.approx(4.5)
