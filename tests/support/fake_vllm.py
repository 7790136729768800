"""A stand-in for a vLLM server, with its routes and a model of one tensor: no vLLM needed.

The model's next token is drawn from softmax(w) whatever came before, so log-probs, syncs and
probes are the real thing. Started like ``rlvr_servers.main``, or with ``--port``.
"""

import hashlib
import http.server
import itertools
import json
import os
import signal
import socketserver
import sys
import threading
import time
from pathlib import Path

import numpy as np

VOCABULARY, SLOW = 64, float(os.environ.get("FAKE_SECONDS_PER_TOKEN", "0"))


def first_weights():
    return np.random.default_rng(0).normal(size=(1, VOCABULARY)).astype(np.float32)


class State:
    def __init__(self):
        self.w, self.label, self.received = first_weights(), "default", None
        self.paused, self.updating, self.answers = False, False, itertools.count(1)
        self.breaks = os.environ.get("FAKE_BREAKS", "")
        once = os.environ.get("FAKE_ONCE")
        if once:  # the first process alone is broken
            try:
                Path(once).unlink()
            except FileNotFoundError:
                self.breaks = ""


STATE = State()


def fingerprint(tensors):
    """What ``Fingerprint`` makes of float32 tensors; torch takes long to import."""
    lines = [
        f"{name} torch.float32 {array.shape} {array.view(np.int32).sum(dtype=np.int64)}"
        for name, array in sorted(tensors.items())
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:32]


def update(told):
    if told["transport"]["name"] == "core/files":  # whose code would import torch
        from safetensors.numpy import load_file

        files = told["message"]["files"]
        tensors = {name: array for file in files for name, array in load_file(file).items()}
    else:
        from rlvr_core.engines.transport import ChosenTransport

        tensors = {}

        def load(weights):
            tensors.update((name, tensor.numpy()) for name, tensor in weights)

        transport = ChosenTransport(**told["transport"]).make()
        transport.receive(told["message"], load, told["first_worker"])
    if STATE.breaks == "keeps old weights":
        STATE.received = fingerprint(tensors)
        return
    if STATE.breaks == "refuses weights":
        raise ValueError("1 of the model's 1 parameters did not arrive")
    if STATE.breaks == "spoils weights":
        tensors = {name: array + 1 for name, array in tensors.items()}
    if STATE.breaks == "dies of weights":
        os.kill(os.getpid(), signal.SIGKILL)
    STATE.w, STATE.received = tensors["w"], fingerprint(tensors)


def generate(body):
    params = body["sampling_params"]
    draw = np.random.default_rng([params["seed"], *body["token_ids"]])
    entries, spans = [], []
    while len(entries) < params["max_tokens"]:
        time.sleep(SLOW)
        while STATE.paused:
            time.sleep(0.01)
        assert not STATE.updating
        w = STATE.w[0].astype(np.float64)
        logp = w - np.log(np.exp(w).sum())
        if not spans or spans[-1]["version"] != STATE.label:
            spans.append({"version": STATE.label, "start": len(entries)})
        token = int(draw.choice(VOCABULARY, p=np.exp(logp)))
        entries.append({"token_id": token, "logprob": float(logp[token])})
        spans[-1]["end"] = len(entries)
        if token in params["stop_token_ids"]:
            break
    tokens = [one["token_id"] for one in entries]
    n = next(STATE.answers)
    if STATE.breaks == f"dies after {n}":
        os.kill(os.getpid(), signal.SIGKILL)
    ended = tokens[-1] in params["stop_token_ids"]
    choice = {
        "token_ids": tokens,
        "finish_reason": "stop" if ended else "length",
        "logprobs": {"content": entries},
        "weight_versions": spans,
    }
    if STATE.breaks == "aborts" or (STATE.breaks == "aborts once" and n == 4):
        choice |= {"finish_reason": "abort"}
    if STATE.breaks == "fails" and params["max_tokens"] != 4:
        raise RuntimeError("an operator failed")
    return {"choices": [choice]}


def facts():
    return {
        "pid": os.getpid(),
        "vocab_size": VOCABULARY,
        "dtype": os.environ.get("FAKE_DTYPE", "float32"),
        "max_model_len": 64,
        "logprobs_mode": "processed_logprobs",
        "device": "cpu",
        "block_size": 4,
        "chunked_prefill": False,
        "world": 1,
        "backend": "rlvr",
    }


def rpc(body):
    if body["method"] == "rlvr_describe":
        return {"results": [facts()]}
    if body["method"] == "rlvr_fingerprint":
        return {"results": [{}]}  # its one tensor is none of the trainer's model
    return {"results": [{"tensors": 1, "fingerprint": STATE.received}]}


def post(path, body):
    if path == "/inference/v1/generate":
        return generate(body)
    if path == "/collective_rpc":
        return rpc(body)
    if path == "/pause":
        STATE.paused = True
    elif path == "/resume":
        STATE.paused = False
    elif path == "/start_weight_update":
        assert STATE.paused
        STATE.updating = True
    elif path == "/update_weights":
        assert STATE.updating
        update(body["update_info"])
    elif path == "/finish_weight_update":
        STATE.updating, STATE.label = False, body["weight_version"]
    elif path == "/update_weight_version":
        STATE.label = body["new_version"]
    elif path == "/reset_prefix_cache":
        return {"success": STATE.breaks != "keeps its cache"}
    else:
        raise KeyError(path)
    return {}


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = False  # of Unix sockets there is nothing to disable

    def address_string(self):
        return "somebody"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.reply(200, {"weight_version": STATE.label})

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length) or b"{}")
        try:
            found = post(self.path.partition("?")[0], body)
        except Exception as error:
            self.reply(500, {"error": {"message": f"{type(error).__name__}: {error}"}})
        else:
            self.reply(200, found)

    def reply(self, status, found):
        data = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 1024

    def get_request(self):
        request, _ = super().get_request()
        return request, ("local", 0)


class TcpServer(http.server.ThreadingHTTPServer):
    request_queue_size = 1024


def end_with(fd):
    while os.read(fd, 1):
        pass
    os.killpg(os.getpgrp(), signal.SIGKILL)


def main(words):
    if "--uds" in words:
        if os.environ.get("FAKE_START_FAILS") and Path(os.environ["FAKE_START_FAILS"]).exists():
            sys.exit("RuntimeError: no memory for a model this large")
        threading.Thread(target=end_with, args=(int(words[0]),), daemon=True).start()
        UnixServer(words[words.index("--uds") + 1], Handler).serve_forever()
    server = TcpServer(("127.0.0.1", int(words[words.index("--port") + 1])), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
