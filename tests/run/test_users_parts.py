"""Parts that users write and that fail in a run are named as theirs: kind, name and file."""

from __future__ import annotations

import json

import pytest

from rlvr_core.testing.lab import install_plugin

HEAD = """import torch
from concurrent.futures import Future
from rlvr_core import api
from rlvr_core.rollout.samplers.base import SamplerBase, SamplerConfig

def base(batch, normalizer):
    ratio_BT = (batch.logp_BT - batch.old_logp_BT).exp()
    return (-ratio_BT * batch.advantage_B[:, None] * batch.mask_BT).sum() / normalizer.tokens
"""

ENGINE = """class It:
    traits = api.EngineTraits()
    Config = api.NoConfig
    def __init__(self, config): self.version, self.sent = 0, []
    def start(self, context): pass
    def submit(self, request):
        self.sent.append((Future(), request))
        return self.sent[-1][0]
    def drain(self, timeout=None):
        for future, request in self.sent: self.finish(future, request)
        self.sent = []
    def finish(self, future, request): future.set_exception(KeyError('boom'))
    def load_weights(self, version, source): self.version = version
    def sleep(self): pass
    def wake(self): pass
    def close(self): pass
"""

GUARD = """class It:
    def __init__(self, config: api.NoConfig): pass
    def on_groups(self, event): pass
    def on_step(self, event): raise SystemExit(0)
"""

SAMPLER = """class It(SamplerBase):
    traits, Config = api.SamplerTraits(), SamplerConfig
    def begin(self, sources): self.problems = sources[0].problems
    def choose(self, n_problems, step): return self.problems[:n_problems]
    def identity(self): return ""
    def position(self): raise KeyError('boom')
    def seek(self, position): pass
"""


def sections(kind):
    return {
        "loss": {"loss": "./mine.py:It"},
        "advantage": {"advantage": "./mine.py:It"},
        "guard": {"guards": ["./mine.py:It"]},
        "engine": {"engine": "./mine.py:It"},
        "sampler": {"sampler": "./mine.py:It", "checkpoint": {"every": 1}},
    }[kind]


@pytest.mark.parametrize(
    ("kind", "source", "said"),
    [
        (
            "loss",
            "def It(batch, normalizer):\n"
            "    loss = base(batch, normalizer)\n"
            "    loss.backward()\n"
            "    return api.LossOutput(loss, {}, {})",
            "backward through the graph a second time",
        ),
        ("advantage", "def It(step): raise SystemExit(0)", "SystemExit"),
        ("guard", GUARD, "SystemExit"),
        ("engine", ENGINE, "boom"),
        ("sampler", SAMPLER, "boom"),
    ],
)
def test_a_part_that_fails_in_a_run_is_named(lab, kind, source, said):
    (lab.folder / "mine.py").write_text(HEAD + source)
    lab.write(**sections(kind), train={"steps": 2})
    done = lab.rlvr("run", "config.yaml", "--display", "none", check=3)
    last = done.stderr[done.stderr.rindex("error: ") :]
    assert "bug in rlvr" not in done.stderr
    assert "./mine.py:It" in last or kind == "guard"
    assert str(lab.folder / "mine.py") in last
    assert said in last
    record = json.loads((lab.runs()[-1] / "run.json").read_text())
    assert record["outcome"] == "failed"


def test_a_forward_path_that_fails_is_named(lab):
    hooks = """
from rlvr_core.api import hookimpl

@hookimpl
def register_forward_paths(registrar):
    registrar.add("path", "odd_path:find", summary="Fails.")
"""
    path = "def find(model, adapter):\n    return 5\n"
    install_plugin(lab.folder / "site", "odd", {"rlvr_odd.py": hooks, "odd_path.py": path})
    before, lab.site = lab.site, f"{lab.folder / 'site'}:{lab.site}"
    lab.write(model={"path": str(lab.model), "forward_paths": ["odd/path"]}, train={"steps": 1})
    done = lab.rlvr("run", "config.yaml", "--display", "none", check=3)
    lab.site = before
    last = done.stderr[done.stderr.rindex("error: ") :]
    assert "forward path 'odd/path' of plugin odd failed: AttributeError" in last
    assert "odd_path" in last
    assert "bug in rlvr" not in done.stderr
