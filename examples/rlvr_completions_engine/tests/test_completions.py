"""A run against a scripted server: its tokens are trained on, and it gets the new weights."""

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from rlvr_core.testing.fork_server import run_rlvr
from rlvr_core.testing.random_model import save_random_model

HERE = Path(__file__).parents[1]


class Server(ThreadingHTTPServer):
    """Answers as vLLM does, by a model of transformers; ``/reload`` changes its weights."""

    def __init__(self, folder):
        super().__init__(("127.0.0.1", 0), Handler)
        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        self.versions, self.lock = [], threading.Lock()

    def complete(self, body):
        generator = torch.Generator().manual_seed(body["seed"] % 2**63)
        ids, tokens, logprobs, reason = list(body["prompt"]), [], [], "length"
        while len(tokens) < body["max_tokens"]:
            with torch.no_grad():
                logits = self.model(torch.tensor([ids])).logits[0, -1] / body["temperature"]
            logp = logits.log_softmax(-1)
            token = int(torch.multinomial(logp.exp(), 1, generator=generator))
            ids.append(token)
            tokens.append(f"token_id:{token}")
            logprobs.append(float(logp[token]))
            if token == self.model.config.eos_token_id:
                reason = "stop"
                break
        found = {"tokens": tokens, "token_logprobs": logprobs}
        return {"choices": [{"logprobs": found, "finish_reason": reason}]}

    def reload(self, body):
        self.model.load_state_dict(load_file(body["path"]), strict=False)
        self.versions.append(body["version"])
        return {}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            ends = self.path.rsplit("/", 1)[-1]
            answer = self.server.reload(body) if ends == "reload" else self.server.complete(body)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_): ...


@pytest.fixture
def server(tmp_path):
    model = save_random_model(tmp_path / "model")
    with Server(model) as found:
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield found
        found.shutdown()


def run(folder, server, **engine):
    url = f"http://127.0.0.1:{server.server_port}"
    rows = [{"question": f"Say {i}.", "answer": "x"} for i in range(8)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "early.py").write_text(
        "def early(text):\n    return sum(c < 'n' for c in text) / max(1, len(text))\n"
    )
    source = {"path": "data.jsonl", "prompt": "question", "verifier": "core/exact"}
    options = {"base_url": f"{url}/v1", "model": "tiny"} | engine
    config = {
        "run": {"name": "served"},
        "model": {"path": "model"},
        "data": {"sources": [{"use": "core/jsonl", "with": source}]},
        "sampling": {"n": 4, "max_tokens": 6},
        "rewards": ["./early.py:early"],
        "engine": {"use": "rlvr_completions_engine:Completions", "with": options},
        "train": {"steps": 2, "prompts_per_step": 2, "lr": 1e-2, "warmup_steps": 0},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    path = f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    env = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return run_rlvr("run", "config.yaml", "--display", "none", cwd=folder, env=env)


def test_a_run_trains_on_its_tokens_and_sends_it_every_version(tmp_path, server):
    url = f"http://127.0.0.1:{server.server_port}/reload"
    done = run(tmp_path, server, reload_url=url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert server.versions == [0, 1, 2]
    (folder,) = (tmp_path / "runs").glob("[!.]*")
    # the server has what the trainer saved, and the guard found its log-probs equal on the way
    saved = load_file(folder / "checkpoints" / "step000002" / "model.safetensors")
    held = server.model.state_dict()
    assert all(torch.allclose(held[name], tensor) for name, tensor in saved.items())
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2


def test_a_server_that_cannot_take_weights_ends_the_run_with_what_to_do(tmp_path, server):
    done = run(tmp_path, server)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "the server keeps its weights" in done.stderr
    assert "reload_url" in done.stderr
