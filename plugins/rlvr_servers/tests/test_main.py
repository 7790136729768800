"""The process of a server, with a stand-in for vLLM that takes signals as vLLM does."""

import os
import signal
import subprocess
import sys
import time

import psutil

from rlvr_servers import process as vllm_serve

ENTRY = """
import multiprocessing, os, signal, sys, time

def beat(name):
    for notice in (signal.SIGINT, signal.SIGTERM):
        signal.signal(notice, lambda *_: os._exit(1))
    with open(name, "ab", buffering=0) as file:
        while True:
            file.write(b"x")
            time.sleep(0.02)

def main():
    behind = sys.argv[1] + "-behind"
    multiprocessing.get_context("spawn").Process(target=beat, args=(behind,)).start()
    beat(sys.argv[1])
"""


def test_t32_a_server_works_on_after_notice_to_all_processes_and_ends_with_the_trainer(tmp_path):
    entry = tmp_path / "vllm" / "entrypoints" / "launchers" / "api_server" / "entry.py"
    entry.parent.mkdir(parents=True)
    entry.write_text(ENTRY)
    for one in [*entry.parents][:4]:
        (one / "__init__.py").touch()
    folder = tmp_path / "sockets"
    folder.mkdir()
    beats = [tmp_path / "front", tmp_path / "front-behind"]
    theirs, ours = os.pipe()
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    host = subprocess.Popen(
        [sys.executable, "-m", vllm_serve.SERVER_MODULE, str(theirs), str(folder), str(beats[0])],
        env=os.environ | {"PYTHONPATH": path},
        pass_fds=[theirs],
        start_new_session=True,
    )
    os.close(theirs)

    def wait_for_beats(least):
        until = time.monotonic() + 120
        while not all(one.exists() and one.stat().st_size >= least for one in beats):
            assert host.poll() is None, "it has ended"
            assert time.monotonic() < until
            time.sleep(0.01)

    try:
        wait_for_beats(1)
        family = [psutil.Process(host.pid), *psutil.Process(host.pid).children(recursive=True)]
        for notice in (signal.SIGTERM, signal.SIGINT):
            for one in family:
                one.send_signal(notice)
        wait_for_beats(max(one.stat().st_size for one in beats) + 5)
        os.close(ours)
        assert host.wait(60) == -signal.SIGKILL
        _, alive = psutil.wait_procs(family, timeout=60)
        assert not alive
        assert not folder.exists()
    finally:
        host.kill()
