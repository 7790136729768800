"""The same model behind a real vLLM server and in this process: the same answers, and a judge."""

import contextlib
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr_checks.openai.judge import Judge
from rlvr_core.api import Completion, Message, Problem

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]
KEY = "sk-of-the-real-server"
TEMPLATE = "{% for turn in messages %}{{ turn.content }}{% endfor %}"
MAX_LEN = 1024


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="module")
def url(model_dir, tmp_path_factory):
    """A vLLM server of the random model, ended with the module."""
    folder, port = tmp_path_factory.mktemp("server"), free_port()
    (folder / "plain.jinja").write_text(TEMPLATE)
    words = {
        "model": model_dir,
        "served-model-name": "toy/random",
        "host": "127.0.0.1",
        "port": port,
        "dtype": "float32",
        "max-model-len": MAX_LEN,
        "max-num-seqs": 16,
        "block-size": 32,
        "chat-template": folder / "plain.jinja",
        # one process less, which on a CPU would spin
        "distributed-executor-backend": "vllm.v1.executor.uniproc_executor.UniProcExecutor",
    }
    environment = os.environ | {
        "VLLM_API_KEY": KEY,
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager"]
    command += [str(word) for name, value in words.items() for word in (f"--{name}", value)]
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, env=environment, start_new_session=True
        )
    try:
        health = f"http://127.0.0.1:{port}/health"
        for _ in range(400):
            assert process.poll() is None, log.read_text()[-3000:]
            with contextlib.suppress(OSError):
                if urllib.request.urlopen(health, timeout=5).status == 200:
                    break
            time.sleep(1)
        else:
            raise AssertionError(log.read_text()[-3000:])
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("REAL_KEY", KEY)


def words(url, *more, api="completions", model="openai:toy/random"):
    sets = [f"base_url={url}", "api_key_env=REAL_KEY", f"api={api}"]
    sets += ["price={input: 1, output: 3}"]
    flags = [word for set in sets for word in ("--set", f"engine.with.{set}")]
    return [model, "--task", "toy/letters", "--limit", 12, *flags, *more]


def completions(folder):
    lines = (folder / "toy_letters" / "completions.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def whole(row):
    """The text without pieces of characters at its end, which vLLM's server leaves out."""
    return row["text"].rstrip("\ufffd")


def test_greedy_answers_are_those_of_the_model_in_this_process(lab, url, model_dir):
    here = ["--task", "toy/letters", "--limit", 12, "--engine", "transformers"]
    for stop in ("", "e"):
        task = ["--with", "max_tokens=24", "--with", f"stop='{stop}'", "--allow-truncation"]
        lab.rlvr("eval", model_dir, *here, *task, "--out", f"here{stop}")
        told = lab.json("eval", *words(url), *task, "--out", f"raw{stop}")
        lab.rlvr("eval", *words(url, api="chat"), *task, "--out", f"chat{stop}")
        mine = completions(lab.folder / f"here{stop}")
        for other in ("raw", "chat"):  # the server's template adds nothing
            theirs = completions(lab.folder / f"{other}{stop}")
            for one, two in zip(mine, theirs, strict=True):
                assert whole(one) == whole(two)
                assert one["finish_reason"] == two["finish_reason"]
                assert one["n_tokens"] == two["n_tokens"]
        usage = told["tasks"]["toy/letters"]["usage"]
        sent = sum(len(row["prompt_ids"]) for row in mine)
        received = sum(row["n_tokens"] for row in mine)
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (sent, received)
        assert usage["cost"] == pytest.approx((sent + 3 * received) / 1e6)


def test_sampled_answers_are_those_of_vllm_in_this_process(lab, url, model_dir):
    sampling = ["--n", 4, "--k", "1,4", "--allow-truncation"]
    here = ["--task", "toy/letters", "--limit", 12, "--engine", "vllm"]
    lab.rlvr("passk", model_dir, *here, *sampling, "--out", "here")
    lab.rlvr("passk", *words(url), *sampling, "--out", "there")
    pairs = zip(completions(lab.folder / "here"), completions(lab.folder / "there"), strict=True)
    same = [whole(one) == whole(two) for one, two in pairs]
    # a batch of another shape rounds otherwise, which tips a sample now and then
    assert sum(same) >= 0.9 * len(same)
    assert len({row["text"] for row in completions(lab.folder / "there")}) > 12


def test_what_a_real_server_refuses(lab, url):
    done = lab.rlvr("eval", *words(url, model="openai:other"), check=1)
    assert "asked for 'other'; the server told: toy/random" in done.stderr
    done = lab.rlvr("eval", *words(url), "--set", "engine.with.api_key_env=null", check=4)
    assert "HTTP 401" in done.stderr
    assert "engine.with.api_key_env" in done.stderr
    long = f"prompt.system={'x' * 2 * MAX_LEN}"
    done = lab.rlvr("eval", *words(url), "--set", long, "--out", "long", check=1)
    assert "longer context" in done.stderr, done.stderr


def test_a_real_judge_gives_the_score_its_model_finds_likeliest(url, model_dir):
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    digits = tokenizer.convert_tokens_to_ids(list("0123456789"))
    config = Judge.Config(
        base_url=url,
        api_key_env="REAL_KEY",
        model="toy/random",
        rubric="Rate {response} to {prompt}",
        scale=(0, 9),
        pattern=r"^(\d)",
        max_tokens=3,
        # an untrained model says digits when nothing else is allowed
        extra={"allowed_token_ids": digits},
        calibration=False,  # it judges at random
    )
    problem = Problem("p", (Message("user", "Say something."),), "checks/judge", {}, "toy")
    texts = ["one", "two", "three", "four", ""]
    judge = Judge(config)
    found = judge.verify_group(problem, [Completion.from_text(text) for text in texts])
    model = AutoModelForCausalLM.from_pretrained(model_dir).eval()
    for text, verdict in zip(texts, found, strict=True):
        asked = judge._question(problem, Completion.from_text(text))
        ids_1S = torch.tensor([tokenizer(asked)["input_ids"]])
        with torch.no_grad():
            logits_V = model(ids_1S).logits[0, -1]
        likeliest = int(logits_V[digits].argmax())
        assert verdict.status == "ok", verdict
        assert verdict.score == pytest.approx(likeliest / 9)
        assert verdict.usage.prompt_tokens == ids_1S.shape[1]
