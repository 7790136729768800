"""``rlvr export --push``: what it refuses, what a dry run shows, what it sends."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from click.testing import CliRunner

from rlvr_core.api import ConfigError, MachineError
from rlvr_lab.export.command import export_

TOKEN = "hf_" + "aB3dE5gH7jK9mN1pQ3rS5tU7vW9xY1zA2b"


def export(*arguments):
    found = CliRunner().invoke(export_, [str(one) for one in arguments])
    if found.exception is not None:
        raise found.exception
    return found.output


class Hub(BaseHTTPRequestHandler):
    """Takes what huggingface_hub sends to create a repository and to commit small files."""

    def do_POST(self):
        length = self.headers.get("Content-Length")
        body = self.rfile.read(int(length)) if length else b"".join(self.chunks())
        self.server.asked.append((self.path, self.headers.get("Authorization"), body))
        here = f"http://{self.headers['Host']}"
        if self.path == "/api/repos/create":
            answer = {"url": f"{here}/me/tiny", "name": "me/tiny"}
        elif "/preupload/" in self.path:
            names = [one["path"] for one in json.loads(body)["files"]]
            sent = {"uploadMode": "regular", "shouldIgnore": False}
            answer = {"files": [{"path": name, **sent} for name in names]}
        elif self.server.refuse:
            self.send_response(403)
            self.end_headers()
            return
        else:
            answer = {"commitUrl": f"{here}/me/tiny/commit/abc", "commitOid": "abc"}
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def chunks(self):
        while size := int(self.rfile.readline(), 16):
            yield self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()

    def log_message(self, *args):
        pass


@pytest.fixture
def hub(monkeypatch):
    """A server in place of the Hub, and a token for it."""
    from huggingface_hub import constants

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked, server.refuse = [], False
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def made(lab, monkeypatch):
    """A finished run with an evaluation; its folder is the working directory."""
    monkeypatch.chdir(lab.folder)
    task = "math/arithmetic-heldout-greedy"
    lab.run(
        train={"steps": 2},
        eval={"tasks": [task], "every": 2},
    )
    return lab.folder


def test_dry_run_push_and_what_is_in_the_card(made, hub, monkeypatch):
    before = sorted(made.rglob("*"))
    shown = export("last", "out", "--push", "me/tiny", "--dry-run")
    assert sorted(made.rglob("*")) == before
    assert hub.asked == []
    assert "would be pushed to me/tiny" in shown
    (weights,) = made.glob("runs/lab*/checkpoints/step000002/model*.safetensors")
    size = weights.stat().st_size
    assert f"{size:,}  model.safetensors" in shown
    card = shown.partition("README.md:\n\n")[2]
    assert card.startswith("---\nlibrary_name: transformers\nlicense: unknown\n")
    assert f"| written by | {weights.parents[2].name}, step 2 |" in card
    assert "math/arithmetic-heldout-greedy, " in card
    assert "prompts_per_step:" in card
    assert "base_model:" not in card  # it is a folder of this machine

    said = export("last", "out", "--push", "me/tiny", "--private")
    assert said.startswith("model: out\npushed: http://127.0.0.1:")
    paths = [path for path, _, _ in hub.asked]
    assert paths[0] == "/api/repos/create"
    assert paths[-1] == "/api/models/me/tiny/commit/main"
    assert {token for _, token, _ in hub.asked} == {f"Bearer {TOKEN}"}
    create = json.loads(hub.asked[0][2])
    assert create["visibility"] == "private"
    lines = [json.loads(line) for line in hub.asked[-1][2].splitlines()]
    sent = {
        line["value"]["path"]: base64.b64decode(line["value"]["content"])
        for line in lines
        if line["key"] == "file"
    }
    assert sent.keys() == {path.name for path in (made / "out").iterdir()} | {"README.md"}
    assert sent["model.safetensors"] == (made / "out/model.safetensors").read_bytes()
    assert sent["README.md"].decode() == card.rstrip("\n") + "\n"

    hub.refuse = True
    with pytest.raises(MachineError, match=r"did not take it(?s:.*)complete: out2"):
        export("last", "out2", "--push", "me/tiny")
    assert (made / "out2/model.safetensors").is_file()

    (made / "out2/notes.json").write_text(json.dumps({"token": TOKEN}))
    asked = len(hub.asked)
    for extra in ((), ("--dry-run",)):
        with pytest.raises(ConfigError, match=r"looks like a secret(?s:.*)notes.json:1"):
            export("out2", f"out3{len(extra)}", "--push", "me/tiny", *extra)
    assert len(hub.asked) == asked


def test_what_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    out = tmp_path / "out"
    with pytest.raises(MachineError, match=r"no token(?s:.*)hf auth login"):
        export("last", out, "--push", "me/tiny")
    with pytest.raises(ConfigError, match="no repository"):
        export("last", out, "--push", "me/ti ny")
    with pytest.raises(ConfigError, match=r"nothing is pushed(?s:.*)--push REPO"):
        export("last", out, "--dry-run")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(MachineError, match="HF_HUB_OFFLINE is set"):
        export("last", out, "--push", "me/tiny")
    assert not out.exists()
