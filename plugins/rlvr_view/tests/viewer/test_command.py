"""The command: what it says of a port or folder that it cannot use, and how it ends."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import psutil
import pytest
from click.testing import CliRunner

pytest.importorskip("uvicorn")

from plugins.rlvr_view.tests.reports.made_runs import make_run
from rlvr_core.api import ConfigError, MachineError
from rlvr_core.cli.main import main
from rlvr_view.viewer.command import view


def test_a_busy_port_is_said_with_what_to_do(runs, capfd):
    runs.mkdir()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["view", str(runs), "--port", str(port)]) == MachineError.exit_code
    told = capfd.readouterr().err
    assert f"port {port} is in use" in told
    assert "rlvr view --port 0" in told


def test_a_folder_that_is_not_there_is_said(tmp_path):
    found = CliRunner().invoke(view, [str(tmp_path / "none")])
    assert isinstance(found.exception, ConfigError)
    assert "there is no folder" in str(found.exception)


@pytest.mark.slow
def test_it_serves_this_machine_alone_and_ends_with_ctrl_c(runs, tmp_path):
    make_run(runs)
    words = [sys.executable, "-m", "rlvr_core.cli.main", "view", str(runs), "--port", "0"]
    with subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONUNBUFFERED": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as server:
        try:
            address = re.match(r"http://127\.0\.0\.1:\d+/", server.stdout.readline())[0]
            with urllib.request.urlopen(address, timeout=60) as answer:
                assert b"1 of 1 runs" in answer.read()
            listening = [
                net_connection.laddr.ip
                for net_connection in psutil.Process(server.pid).net_connections()
                if net_connection.status == "LISTEN"
            ]
            assert listening == ["127.0.0.1"]
            server.send_signal(signal.SIGINT)
            _, told = server.communicate(timeout=60)
        finally:
            server.kill()
    assert server.returncode == 130
    assert told.strip() == "interrupted"
