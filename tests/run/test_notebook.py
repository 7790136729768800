"""Runs in a notebook: a real Jupyter kernel, a function written in a cell, an interrupted cell."""

from __future__ import annotations

import contextlib
import json
import queue
import time

import pytest

jupyter_client = pytest.importorskip("jupyter_client")

pytestmark = pytest.mark.slow

FIRST = """
import rlvr_core
LIMIT = "n"

def early(text):
    return sum(c < LIMIT for c in text) / max(1, len(text))

run = rlvr_core.train("config.yaml", rewards=[early], set={"train.steps": 2}, display="none")
print(run.outcome, len(run.metrics["reward/mean"]))
"""
LONG = """
rlvr_core.train("config.yaml", rewards=[early], set={"train.steps": 100000}, display="none")
"""
AFTER = """
def early(text):  # the cell again, changed
    return float(len(text))

again = rlvr_core.train("config.yaml", rewards=[early], set={"train.steps": 1}, display="none")
print(again.outcome, rlvr_core.RunView.find("last").path == again.path)
"""


class Notebook:
    """Cells of a kernel of its own."""

    def __init__(self, client):
        self.client = client

    def start(self, code):
        return self.client.execute(code)

    def finish(self, request, timeout=500):
        """What the cell printed, and the name of the exception that ended it, if one did."""
        printed, error, until = "", None, time.monotonic() + timeout
        while time.monotonic() < until:
            with contextlib.suppress(queue.Empty):
                message = self.client.get_iopub_msg(timeout=5)
                if message["parent_header"].get("msg_id") != request:
                    continue
                content = message["content"]
                if message["msg_type"] == "stream" and content["name"] == "stdout":
                    printed += content["text"]
                elif message["msg_type"] == "error":
                    error = content["ename"] + ": " + content["evalue"]
                elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                    return printed, error
        raise AssertionError(f"the cell did not end in {timeout} s")


@pytest.fixture
def notebook(lab):
    lab.write(checkpoint={"every": 0})
    manager = jupyter_client.KernelManager(kernel_name="python3")
    env = lab.env() | {"XDG_CACHE_HOME": str(lab.folder / "cache")}
    manager.start_kernel(cwd=str(lab.folder), env=env)
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        yield manager, Notebook(client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_cells_train_stop_when_interrupted_and_train_again(lab, notebook):
    manager, cells = notebook
    assert cells.finish(cells.start(FIRST)) == ("finished 2\n", None)
    (first,) = lab.runs()
    request = cells.start(LONG)
    until = time.monotonic() + 300
    while time.monotonic() < until:
        metrics = [run / "metrics.jsonl" for run in lab.runs() if run != first]
        if metrics and metrics[0].exists() and metrics[0].read_text().count("\n") >= 2:
            break
        time.sleep(0.1)
    manager.interrupt_kernel()
    _printed, error = cells.finish(request)
    assert error is not None
    assert error.startswith("KeyboardInterrupt")
    (interrupted,) = [run for run in lab.runs() if run != first]
    assert any((interrupted / "checkpoints").glob("step*/COMPLETE"))
    assert json.loads((interrupted / "run.json").read_text())["outcome"] == "interrupted"
    assert cells.finish(cells.start(AFTER)) == ("finished True\n", None)
