"""A run that waits for what never comes is ended, with what it waited for; a slow one is not."""

import json
import threading
import time
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from rlvr_core.api import RunStarted
from rlvr_core.guards.watchdog import FLOOR, HungError, Watchdog


def config(max_wait=None):
    return Watchdog.Config(max_wait=max_wait)


def bound(timeout):
    """A watchdog of a run with this timeout."""
    dog = Watchdog(config())
    dog.bind(SimpleNamespace(config=SimpleNamespace(run=SimpleNamespace(timeout=timeout))))
    return dog


def dog(seconds):
    return {"use": "core/watchdog", "with": {"max_wait": seconds}}


def never(code):
    raise AssertionError(f"the process was ended with {code}")


def twice():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


@pytest.mark.parametrize(
    ("wait", "shown"),
    [
        (lambda: Future().result(), "concurrent/futures"),
        (twice, "lock.acquire()"),
    ],
    ids=["verdicts that never come", "a lock taken twice"],
)
def test_a_wait_that_never_ends_is_interrupted_and_named(tmp_path, capfd, wait, shown):
    def run():
        with Watchdog(config(0.3), never) as dog:
            dog.run_started(RunStarted(tmp_path, {}, 0))
            dog.phase("verdicts on 8 groups")
            wait()

    began = time.monotonic()
    with pytest.raises(HungError, match="guard watchdog: the run has waited") as caught:
        run()
    assert time.monotonic() - began < 20
    assert HungError.exit_code == 7
    assert "for: verdicts on 8 groups" in str(caught.value)
    assert "rlvr docs guards#watchdog" in str(caught.value)
    report = (tmp_path / "watchdog.txt").read_text()
    assert "verdicts on 8 groups, since 2" in report
    assert "MainThread, which trains" in report
    assert shown in report
    assert report in capfd.readouterr().err


def test_other_processes_of_a_run_are_not_watched(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with Watchdog(config(0.1), never) as dog:
        dog.phase("the model's files and its tokenizer")
        time.sleep(0.5)


def test_a_run_that_goes_on_is_left_alone(tmp_path):
    with Watchdog(config(0.5), never) as dog:
        dog.run_started(RunStarted(tmp_path, {}, 0))
        for number in range(12):
            dog.phase(f"generation of {number} completions")
            time.sleep(0.1)
    time.sleep(0.8)
    assert not (tmp_path / "watchdog.txt").exists()


def test_what_took_long_before_may_take_longer(tmp_path):
    with Watchdog(config(0.2), never) as dog:
        dog.run_started(RunStarted(tmp_path, {}, 0))
        dog.phase("generation of 64 completions")
        time.sleep(0.1)
        dog.phase("train")
        assert 1.0 <= dog.limit("generation of # completions") < 5
        assert dog.limit("sync") == 0.2
        dog.phase("generation of 32 completions")
        time.sleep(0.6)  # three times max_wait
        dog.phase("train")
    assert not (tmp_path / "watchdog.txt").exists()


def test_limits_by_default():
    assert Watchdog(config()).limit("train") == FLOOR == 7200
    assert bound(36000).limit("train") == 72000
    assert bound(5).limit("train") == FLOOR


def test_other_threads_do_not_hide_a_wait(tmp_path):
    stop = threading.Event()

    def run():
        with Watchdog(config(0.5), never) as dog:
            dog.run_started(RunStarted(tmp_path, {}, 0))
            dog.phase("sync")

            def generate():
                while not stop.wait(0.05):
                    dog.phase("generation of 8 completions")

            threading.Thread(target=generate).start()
            time.sleep(30)

    try:
        with pytest.raises(HungError, match="for: sync"):
            run()
    finally:
        stop.set()


def test_a_process_that_cannot_be_woken_is_ended(tmp_path, capfd):
    ended, release = Future(), threading.Event()

    def run():  # signals wake the main thread alone
        with Watchdog(config(0.2), ended.set_result) as dog:
            dog.run_started(RunStarted(tmp_path, {}, 0))
            dog.phase("train")
            release.wait(30)

    thread = threading.Thread(target=run)
    thread.start()
    assert ended.result(20) == 7
    release.set()
    thread.join()
    assert "error: guard watchdog" in capfd.readouterr().err


ENGINE = """
import threading
from rlvr_core.engines.transformers import TransformersEngine


class Stuck(TransformersEngine):
    def drain(self, timeout=None):
        # a completion of the third step
        if any("@2#" in request.id for request, _ in self._queue):
            threading.Event().wait()
        return super().drain(timeout)
"""


DATA = """
import threading


def rows():
    threading.Event().wait()
"""


def test_a_run_whose_data_never_come_ends_before_it_has_a_folder(lab):
    (lab.folder / "never.py").write_text(DATA)
    lab.write(data={"sources": ["./never.py:rows"]}, guards=[dog(4)])
    done = lab.rlvr("run", "config.yaml", check=7)
    assert "for: plugins, data sets and their checks" in done.stderr
    assert "never.py" in done.stderr
    assert not lab.runs()


def test_a_run_whose_engine_hangs_ends_with_its_own_code_and_goes_on(lab):
    (lab.folder / "stuck.py").write_text(ENGINE)
    lab.write(engine="./stuck.py:Stuck", guards=[dog(5)], checkpoint={"every": 1})
    done = lab.rlvr("run", "config.yaml", check=7)
    assert "error: guard watchdog: the run has waited" in done.stderr
    assert "for: generation of" in done.stderr
    run = lab.runs()[-1]
    assert json.loads((run / "run.json").read_text())["outcome"] == "failed"
    assert "stuck.py" in (run / "watchdog.txt").read_text()
    assert len(list((run / "checkpoints").glob("step*/COMPLETE"))) == 2
