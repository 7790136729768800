"""One conversation, one verdict: training and evaluation say the same of it."""

from __future__ import annotations

import contextlib
import io
import json

import pytest

from rlvr_bs4.generate import generate
from rlvr_bs4.web.datasets import WebBench, problem
from rlvr_bs4.web.environment import Web
from rlvr_core.api import ToolCall
from rlvr_core.cli.main import main
from rlvr_core.plugins.tool_formats import tool_format
from rlvr_core.testing.random_model import save_random_model
from rlvr_devkit.conformance.environments import play

LIMIT = 13
"""Entries of the benchmark that are played: one of every kind of conversation below is in them."""
OPTIONS = {"partial_credit": 0.1, "call_cost": 0.05, "seconds": 10.0}
TURNS = 6
LOOK = "print(make_soup().find('body').get_text()[:100])"
NONE = json.dumps({"status": "ok", "answer": "none of these"})


def call(tool, **arguments):
    return tool_format("hermes").render(ToolCall(tool, arguments))


def run(code):
    return call("run_python", code=code)


def ok(answer):
    return json.dumps({"status": "ok", "answer": answer})


def conversations(tasks):
    """What is said about each task, by archetype, and score and parts worked out by hand."""
    nearly = tasks["mvp.css_combinator"].answer
    share = 2 * (len(nearly) - 1) / (2 * len(nearly) - 1)
    secret = tasks["mvp.parser_differences"].canaries[0]
    right = {id: ok(task.answer) for id, task in tasks.items()}
    limit = tasks["mvp.limit_js_required"].gold
    return {
        "mvp.multivalue_class": ([run(LOOK), right["mvp.multivalue_class"]],
                                 1.0, {"correct": 1, "bs4": 1, "efficiency": 1}),
        "web.text_separator": ([run(LOOK), ok("a text where a list is asked for")],
                               0.0, {"correct": 0, "format": 1, "schema": 0, "process": 1}),
        "mvp.limit_js_required": ([run(LOOK)] * 3 + [limit],
                                  1.0, {"abstained": 1, "correct": 1, "efficiency": 1}),
        "mvp.parser_differences": ([run(f"{LOOK}\nprint({secret!r})"),
                                    right["mvp.parser_differences"]],
                                   -0.5, {"correct": 1, "safe": 0, "process": 0}),
        "mvp.extract_text_by_id": ([run(LOOK)] * 4 + [right["mvp.extract_text_by_id"]],
                                   0.85, {"correct": 1, "efficiency": 0.85}),
        "mvp.relational_query": ([run("print(len(HTML))"), right["mvp.relational_query"]],
                                 0.85, {"looked": 1, "bs4": 0, "process": 1}),
        "mvp.none_attribute_error": ([run("print(1)"), right["mvp.none_attribute_error"]],
                                     0.0, {"correct": 1, "looked": 0, "process": 0}),
        "mvp.css_combinator": ([run(LOOK), ok(nearly[:-1])],
                               0.1 * share, {"correct": 0, "partial": share, "schema": 1}),
        "mvp.remove_scripts_styles": ([run(LOOK)] * TURNS, 0.0, {"format": 0, "looked": 1}),
        "web.opengraph": ([call("fetch", url="/"), run(LOOK), call("lint_json", json_string="{"),
                           right["web.opengraph"]],
                          0.95, {"correct": 1, "efficiency": 0.95}),
        "mvp.extract_emoji_content": (["42"], 0.0, {"format": 0, "looked": 0}),
    }  # fmt: skip


def script(problems, said):
    """Answers of the scripted engine: the turn that is next is known by what was said before it."""
    found = {}
    for index, (one, replies) in enumerate(zip(problems, said, strict=True)):
        marks = [f"[{index} {turn}]" for turn in range(len(replies))]
        told = [f"{mark} {reply}" for mark, reply in zip(marks, replies, strict=True)]
        steps = [one.id, *marks[:-1]]
        # two samples of a problem say the same in other words: the run sees to it that they differ
        found |= {step: [text, f"So: {text}"] for step, text in zip(steps, told, strict=True)}
    return dict(reversed(found.items()))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_random_model(tmp_path_factory.mktemp("model"))


def rlvr(*words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    assert code == 0, f"{out.getvalue()}{err.getvalue()}"
    return out.getvalue()


def verdict(row):
    """What a verdict says, of a row that has one."""
    (found,) = row["verdicts"].values()
    return {name: found[name] for name in ("score", "passed", "parts", "detail")}


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_b10_p24_one_conversation_has_one_verdict_in_training_and_evaluation(
    tmp_path, monkeypatch, model
):
    monkeypatch.chdir(tmp_path)
    problems = WebBench(WebBench.Config(limit=LIMIT, max_size="small")).problems()
    tasks = {
        one.spec["archetype"]: generate(*(one.spec[key] for key in ("archetype", "seed", "size")))
        for one in problems
    }
    wanted = conversations(tasks)
    assert set(wanted) <= set(tasks)
    said = [wanted.get(id, ([NONE], 0, {}))[0] for id in tasks]

    # by the environment alone
    web = Web(Web.Config(**OPTIONS))
    direct = {}
    for one, replies in zip(problems, said, strict=True):
        found = play(web, one, replies, max_turns=TURNS).verdict
        direct[one.id] = {
            "score": found.score, "passed": found.passed, "parts": dict(found.parts),
            "detail": found.detail,
        }  # fmt: skip
    web.shut()
    for id, (_, score, parts) in wanted.items():
        found = direct[problem(tasks[id]).id]
        assert found["score"] == pytest.approx(score), id
        assert {name: found["parts"][name] for name in parts} == pytest.approx(parts), id

    # in training, and what a run keeps
    engine = {"use": "scripted", "with": {"answers": script(problems, said), "logprob": -1.0}}
    environment = {"use": "bs4/web", "max_turns": TURNS, "workers": 1,
                   "with": {**OPTIONS, "prompt": "text"}}  # fmt: skip
    rows = [{"id": one.id, "q": one.prompt, **one.spec} for one in problems]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    jsonl = {"path": "tasks.jsonl", "id": "id", "prompt": "q", "verifier": "env/environment"}
    (tmp_path / "run.yaml").write_text(
        json.dumps(
            {
                "run": {"name": "one", "dir": "runs"},
                "model": {"path": str(model)},
                "data": {
                    "sources": [{"use": "core/jsonl", "with": jsonl}],
                    "max_prompt_tokens": 8000,
                },
                "environment": environment,
                "sampler": {"with": {"drop_zero_variance": False, "refill": 0}},
                "sampling": {"n": 2, "max_tokens": 20_000},
                "engine": engine,
                "loss": "core/grpo",
                "train": {"steps": 1, "prompts_per_step": LIMIT, "lr": 1e-6},
                "guards": [
                    {"use": "guards/preflight", "off": True},
                    {"use": "core/parity", "off": True},
                ],
            }
        )
    )
    rlvr("run", "run.yaml", "--display", "none")
    (folder,) = (tmp_path / "runs").iterdir()
    groups = lines(folder / "traces" / "rollouts.jsonl")
    assert sum(len(group["completions"]) for group in groups) == 2 * LIMIT
    for group in groups:
        for row in group["completions"]:
            assert verdict(row) == direct[group["problem_id"]], group["problem_id"]

    # in an evaluation
    (tmp_path / "eval.yaml").write_text(json.dumps({"engine": engine, "environment": environment}))
    bench = {"limit": LIMIT, "max_size": "small", "max_tokens": 20_000}
    given = [word for key, value in bench.items() for word in ("--with", f"{key}={value}")]
    words = ("eval", model, "--config", "eval.yaml", "--task", "bs4/web-bench", *given)
    words += ("--allow-truncation",)  # one of them has no end
    summary = json.loads(rlvr(*words, "--out", "evaluated", "--json"))
    (results,) = (tmp_path / "evaluated").glob("*/results.jsonl")
    evaluated = {row["problem_id"]: verdict(row) for row in lines(results)}
    assert evaluated == direct

    accuracy = sum(one["passed"] for one in direct.values()) / LIMIT
    metrics = summary["tasks"]["bs4/web-bench"]["task_metrics"]
    assert metrics["accuracy"]["value"] == pytest.approx(accuracy)
