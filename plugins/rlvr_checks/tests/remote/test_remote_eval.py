"""rlvr eval and passk on a model that is elsewhere, with and without a judge."""

import json
from pathlib import Path

import pytest
import yaml

from tests.support.openai_server import Server, answer

KEY = "sk-in-no-file"


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr("rlvr_checks.openai.client.FIRST_WAIT", 0.01)
    monkeypatch.setenv("LAB_KEY", KEY)
    found = Server()
    found.then = lambda body: answer(f"b {len(str(body['messages']))}")
    yield found
    found.close()


def words(server, *more):
    engine = {"base_url": server.url, "api_key_env": "LAB_KEY", "concurrency": 4, "retries": 1}
    sets = [f"engine.with.{key}={value}" for key, value in engine.items()]
    flags = [word for set in sets for word in ("--set", set)]
    return ["openai:org/m", "--task", "toy/letters", *flags, *more]


def rows(folder, name="results"):
    lines = (folder / "toy_letters" / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_an_evaluation_and_what_it_cost(lab, server):
    price = "engine.with.price={input: 2, output: 4}"
    told = lab.json("eval", *words(server, "--set", price))
    out = lab.folder / "evals" / "openai-org-m"
    assert told["folder"] == str(out.relative_to(lab.folder))
    summary = told["tasks"]["toy/letters"]
    usage = summary["usage"]
    assert (usage["answers"], usage["requests"], usage["uncounted"]) == (24, 24, 0)
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (240, 72)
    assert usage["cost"] == pytest.approx((240 * 2 + 72 * 4) / 1e6)
    assert summary["engine"]["with"]["price"] == {"input": 2.0, "output": 4.0}
    assert "dtype" not in summary["engine"]
    assert summary["metrics"]["length"]["value"] == 3.0
    said = rows(out, "completions")
    assert [row["problem_id"] for row in said] == [f"p{i}" for i in range(24)]
    assert said[1]["prompt"] == "[user]\nSay 37:"
    assert (said[1]["token_ids"], said[1]["n_tokens"]) == ([], 3)
    for file in out.rglob("*"):
        assert file.is_dir() or KEY not in file.read_text()
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"


def test_t76_an_outage_costs_nothing_that_was_answered(lab, server):
    server.script = [server.then] * 10
    server.then = lambda _: 503
    done = lab.rlvr("eval", *words(server), check=1)
    assert "HTTP 503" in done.stderr
    assert "run the same command again" in done.stderr
    first = len(server.bodies)
    server.then = lambda _: answer("b")
    lab.rlvr("eval", *words(server))
    asked = [body["messages"][0]["content"] for body in server.bodies]
    assert len(asked[first:]) == 14
    assert not set(asked[:10]) & set(asked[first:])
    out = lab.folder / "evals" / "openai-org-m"
    assert [row["problem_id"] for row in rows(out)] == [f"p{i}" for i in range(24)]
    usage = json.loads((out / "summary.json").read_text())["tasks"]["toy/letters"]["usage"]
    assert usage["answers"] == 24  # of both
    before = len(server.bodies)
    lab.rlvr("eval", *words(server))
    assert len(server.bodies) == before  # nothing is left to ask


def test_t72_the_server_says_what_was_cut_off(lab, server):
    server.script = [answer("b", "length")] * 3
    done = lab.rlvr("eval", *words(server), check=1)
    assert "12.5% of the answers were cut off" in done.stderr


def test_passk_of_a_remote_model(lab, server):
    server.then = lambda body: answer("bz"[body["seed"] % 2])
    told = lab.json("passk", *words(server, "--limit", 3, "--n", 6, "--k", "1,6"))
    (summary,) = told["tasks"].values()
    assert summary["usage"]["answers"] == 18
    seeds = [body["seed"] for body in server.bodies]
    assert len(set(seeds)) == 18
    right = sum(seed % 2 == 0 for seed in seeds)
    assert summary["pass_at_k"]["1"]["value"] == pytest.approx(right / 18)


def judged(server, out, **judge):
    config = {
        "model": {"path": "openai:org/m"},
        "engine": {"with": {"base_url": server.url}},
        "tasks": ["toy/letters"],
        "limit": 6,
        "rewards": [
            {"use": "auto", "weight": 0.75},
            {
                "use": "judge",
                "weight": 0.25,
                "with": {
                    "base_url": server.url,
                    "model": "wise",
                    "rubric": "{response}",
                    "scale": [0, 10],
                    "asks": 1,
                    "retries": 0,
                    **judge,
                },
            },
        ],
    }
    Path("judged.yaml").write_text(yaml.safe_dump(config))
    return ["eval", "--config", "judged.yaml", "--set", "verify.max_error_rate=1", "--out", out]


def test_a_judge_blended_with_a_rule_row_by_row(lab, server):
    def reply(body):
        if body["model"] != "wise":
            return answer("bbbb")
        return answer("no idea") if len(asked) == 3 else answer("Score: 8")

    asked = []
    server.then = lambda body: (
        asked.append(body) if body["model"] == "wise" else None,
        reply(body),
    )[1]
    told = lab.json(*judged(server, "blend", price={"input": 1, "output": 1}))
    found = rows(lab.folder / "blend")
    bad = [row for row in found if row["score"] is None]
    assert len(bad) == 1
    assert bad[0]["passed"] is True  # the rule's outcome is kept
    assert bad[0]["verdicts"]["toy/early"]["status"] == "ok"
    assert bad[0]["verdicts"]["checks/judge"]["status"] == "error"
    for row in found:
        if row is not bad[0]:
            assert row["score"] == pytest.approx(0.75 * 1.0 + 0.25 * 0.8)
    summary = told["tasks"]["toy/letters"]
    assert summary["metrics"]["score"]["n"] == 5
    judge = summary["graders"]["checks/judge"]
    assert judge["statuses"] == {"error": 1, "ok": 5}
    assert judge["usage"]["answers"] == 6
    assert judge["usage"]["cost"] == pytest.approx(6 * 13 / 1e6)
    assert summary["verifiers"]["checks/judge"]["price"] == {"input": 1.0, "output": 1.0}


def test_patience_and_prices_are_no_part_of_the_specification_but_weights_are(lab, server):
    server.then = lambda body: answer("Score: 8" if body["model"] == "wise" else "bbbb")
    one = lab.json(*judged(server, "one"))
    other = lab.json(*judged(server, "other", deadline=99, price={"input": 1, "output": 1}))
    lab.rlvr("compare", "one", "other")
    hashes = [told["tasks"]["toy/letters"]["spec_hash"] for told in (one, other)]
    assert hashes[0] == hashes[1]
    words = judged(server, "third")
    text = Path("judged.yaml").read_text().replace("0.75", "0.5")
    Path("judged.yaml").write_text(text)
    lab.rlvr(*words)
    done = lab.rlvr("compare", "one", "third", check=2)
    assert "rewards" in done.stderr


def test_a_judge_alone(lab, server):
    server.then = lambda body: answer("Score: 8" if body["model"] == "wise" else "bbbb")
    words = judged(server, "alone", pass_at=0.8)
    config = yaml.safe_load(Path("judged.yaml").read_text())
    config["rewards"] = [{**config["rewards"][1], "weight": 1.0}]
    Path("judged.yaml").write_text(yaml.safe_dump(config))
    told = lab.json(*words)["tasks"]["toy/letters"]
    assert list(told["graders"]) == ["checks/judge"]
    assert told["metrics"]["accuracy"]["value"] == 1.0
    assert told["metrics"]["score"]["value"] == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["openai:m"], "option 'base_url' of engine 'checks/openai' is missing"),
        (["openai:m", "--engine", "transformers"], "is on another machine"),
        (["{model}", "--set", "engine.with.base_url=http://x/v1"], "'auto' chooses the engine"),
        (
            ["{model}", "--engine", "openai", "--set", "engine.with.base_url=http://x/v1"],
            "name the model as its server does: openai:NAME",
        ),
        (
            ["openai:m", "--set", "rewards=[{use: auto, schedule: {to: 0, steps: 5}}]"],
            "an evaluation has no steps",
        ),
    ],
)
def test_what_does_not_go_together(lab, model_dir, words, told):
    found = [word.format(model=model_dir) if "{model}" in word else word for word in words]
    done = lab.rlvr("eval", *found, "--task", "toy/letters", check=2)
    assert told in done.stderr


def test_a_prompt_that_an_api_has_no_place_for_is_refused_before_the_first_request(lab, server):
    refused = [
        (["--set", "prompt.prefix=So"], "a chat API has no place for"),
        (["--set", "prompt.chat_template=never"], "set the engine's api to completions"),
        (
            ["--set", "engine.with.api=completions", "--set", "prompt.chat_template=always"],
            "set the engine's api to chat",
        ),
    ]
    for number, (more, told) in enumerate(refused):
        done = lab.rlvr("eval", *words(server, *more), "--out", f"out{number}", check=2)
        assert told in done.stderr
    assert server.bodies == []
    server.then = lambda _: answer("b")
    more = ["--set", "engine.with.api=completions", "--set", "prompt.prefix=So"]
    lab.rlvr("eval", *words(server, *more, "--set", "prompt.system=Hear this.", "--limit", 1))
    assert server.bodies[0]["prompt"] == "Hear this.\n\nSay 0:So"


def test_a_run_cannot_train_with_it(lab, model_dir):
    lab.write_run_config(model_dir, engine={"use": "openai", "with": {"base_url": "http://x/v1"}})
    done = lab.rlvr("run", "config.yaml", check=2)
    assert "a run cannot train with it" in done.stderr
    assert not (lab.folder / "runs").exists()
