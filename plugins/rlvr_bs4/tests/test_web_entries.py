"""What results are kept with, and a world among hostile words."""

from __future__ import annotations

import base64
import json
import math
import os
import pickle
import signal
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rlvr_bs4 import manifest
from rlvr_bs4.evals import Bench
from rlvr_bs4.generate import generate
from rlvr_bs4.web.datasets import WebBench, problem
from rlvr_bs4.web.environment import Web
from rlvr_core.api import Completion, Done, Group, Judged, Observation, Reply, ToolCall, Verdict
from rlvr_core.plugins.tool_formats import tool_format
from rlvr_core.workers.process import ComponentSpec
from rlvr_env.environments.observations import plain_answer
from rlvr_env.environments.pool import EnvironmentFailedError, EnvironmentPool
from rlvr_env.environments.worker import Call

EASY = generate("primer.extract_by_id", 1, "bare")


def run(code):
    return tool_format("hermes").render(ToolCall("run_python", {"code": code}))


def ok(answer):
    return json.dumps({"status": "ok", "answer": answer})


@pytest.fixture(scope="module")
def web():
    made = Web(Web.Config(seconds=10.0))
    yield made
    made.shut()


# -- what a result is kept with ----------------------------------------------------------------


def test_b12_results_of_the_benchmark_name_its_hash_and_the_libraries():
    for cls in (Bench, WebBench):
        task = cls(cls.Config(limit=2))
        groups = [
            Group(one, (Judged(Completion.from_text("no"), {}, 0.0, False),), 0)
            for one in task.problems()
        ]
        basis = task.score(groups).basis
        assert basis["manifest"] == manifest.digest(manifest.read()[1])
        assert basis["benchmark"] == manifest.VERSION
        assert basis["versions"] == manifest.versions()
        assert {"python", "beautifulsoup4", "lxml", "rlvr-bs4"} <= set(basis["versions"])
        json.dumps(basis)


SOLVE = "print(make_soup().find(id=re.search(r'[a-z]+-\\w{6}', QUERY)[0]).get_text())"


# -- hostile replies (property 26) -----------------------------------------------------------------

scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30)
values = st.recursive(
    scalars,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=8), one, max_size=3),
    max_leaves=6,
)
names = st.sampled_from(["run_python", "navigate", "back", "get_task_metadata", "lint_json", "x"])
keys = st.sampled_from(["code", "href", "json_string", "", "self"])
calls = st.builds(
    lambda name, arguments: json.dumps({"name": name, "arguments": arguments}),
    names | scalars,
    values | st.dictionaries(keys, values, max_size=2),
)
pieces = st.one_of(
    calls.map(lambda body: f"<tool_call>{body}</tool_call>"),
    calls.map(lambda body: f"<tool_call>{body[:-3]}"),
    calls,
    values.map(lambda value: f'{{"status": "ok", "answer": {value!r}}}'),
    st.sampled_from(
        ["<tool_call>", "</tool_call>", "<think>", "</think>", "```python\n", "\n```\n", "{", "\0",
         '{"status": "limit", "answer": null, "limit": {"reason": "x", "evidence": "<"}}',
         "navigate('/')\n", "back()", "<|python_tag|>", ";", "\\ud800", "'", '"']
    ),
    st.text(max_size=40),
)  # fmt: skip


@pytest.mark.parametrize("name", ["hermes", "llama", "python"])
def test_no_reply_breaks_a_conversation(web, name):
    ran = []

    class Counting:
        """A sandbox that only notes what it is asked to run."""

        def run(self, pieces, given):
            from rlvr_bs4.web.programs import Ran, Use

            ran.append(pieces)
            return Ran("ran", False, False, Use())

    own = Web(web.config.model_copy(update={"format": name, "repair": True}))
    own._made = Counting()
    one = problem(EASY)

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.lists(pieces, max_size=6).map("".join), min_size=1, max_size=4))
    def hostile(replies):
        state = own.start(one, 0)
        for turn, text in enumerate(replies):
            before = len(ran)
            found = own.step(pickle.loads(pickle.dumps(state)), Reply(text, turn, 4 - turn))
            found = own.step(state, Reply(text, turn, 4 - turn))
            plain_answer(found)  # what a run accepts
            assert isinstance(found, Observation | Done)
            if isinstance(found, Done):
                assert len(ran) == before, "an answer runs nothing"
                assert math.isfinite(found.verdict.score)
                assert -0.5 <= found.verdict.score <= 1.0
                break
            assert len(found.messages) == len(state.steps[-1].calls)
            assert len(ran) - before <= 2 * sum(
                c.name == "run_python" for c in state.steps[-1].calls
            )
        assert isinstance(own.cut(state, "max_turns"), Verdict)

    hostile()


# -- lost processes (property 28) ------------------------------------------------------------------


def children(pid):
    """All processes below one."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if parent == pid:
            found += [int(path.parent.name), *children(int(path.parent.name))]
    return found


def gone(pids):
    """Whether all have ended, some time soon."""
    for _ in range(600):
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.1)
    return False


def test_conversations_go_on_when_their_process_is_killed_and_nothing_is_left_of_it():
    spec = ComponentSpec("rlvr_bs4.web.environment:Web", {"seconds": 10.0})
    pool = EnvironmentPool({"bs4/web": spec}, workers=1, timeout=1.0)

    def ask(what, state, argument):
        return pool.submit(Call(what, "bs4/web", state, argument))

    def state_of(answer):
        return base64.b85decode(answer["state"])

    try:
        begun = ask("start", pickle.dumps(problem(EASY)), 0).result()
        seen = ask("step", state_of(begun), Reply(run(SOLVE), 0, 4)).result()
        (pid,) = pool.pids()
        below = children(pid)
        assert below, "the sandbox runs below the worker"
        hung = ask("step", state_of(seen), Reply(run("import time; time.sleep(25)"), 1, 3))
        time.sleep(1.0)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(EnvironmentFailedError, match="its process ended"):
            hung.result()
        assert gone([pid, *below])
        again = ask("step", state_of(seen), Reply(run("print(len(HTML))"), 1, 3)).result()
        assert again["messages"][0][1] == str(len(EASY.html))
        end = ask("step", state_of(again), Reply(ok(EASY.answer), 2, 2)).result()
        assert end["done"][0] == pytest.approx(0.9)
        last = [*pool.pids(), *children(pool.pids()[0])]
    finally:
        pool.close()
    assert gone(last)
