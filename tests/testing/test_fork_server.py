"""A command in a fork does what it does in a process of its own."""

import signal
import subprocess

import psutil
import pytest

from rlvr_core.testing import fork_server
from rlvr_core.testing.lab import Lab

PLUGIN = """
import os, signal, sys, time
import click
from rlvr_core.api import hookimpl


@click.command()
def told():
    print(os.getcwd(), os.environ["MINE"], "ANOTHER" in os.environ, sys.argv[1:])
    print("and errors", file=sys.stderr)


@click.command()
def shot():
    os.kill(os.getpid(), 9)


@click.command()
def hangs():
    import subprocess
    print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
    time.sleep(600)


@hookimpl
def register_commands(registrar):
    for name in ("told", "shot", "hangs"):
        registrar.add(name, f"rlvr_odd:{name}", summary="For a test.")
"""


@pytest.fixture
def odd_lab(tmp_path, installed_plugin):
    return Lab(tmp_path, installed_plugin("odd", {"rlvr_odd.py": PLUGIN}))


def true_process(lab, *words, env=None):
    return subprocess.run(
        lab.command(*words),
        cwd=lab.folder,
        env=env or lab.env(),
        capture_output=True,
        text=True,
        check=False,
    )


def test_folder_variables_words_output_and_exit_code_are_the_commands_own(odd_lab, monkeypatch):
    monkeypatch.setenv("ANOTHER", "1")
    env = odd_lab.env() | {"MINE": "here"}
    del env["ANOTHER"]
    done = fork_server.run_rlvr("odd", "told", cwd=odd_lab.folder, env=env)
    true = true_process(odd_lab, "odd", "told", env=env)
    assert done.returncode == true.returncode == 0
    assert done.stdout == f"{odd_lab.folder} here False ['odd', 'told']\n" == true.stdout
    assert done.stderr == "and errors\n" == true.stderr


@pytest.mark.parametrize("words", [["config", "check", "a.yaml"], ["--help"]])
def test_errors_and_help_are_the_same(odd_lab, words):
    (odd_lab.folder / "a.yaml").write_text("model: {paht: x}\n")
    true, done = true_process(odd_lab, *words), odd_lab.rlvr(*words, check=None)
    assert (done.returncode, done.stdout, done.stderr) == (
        true.returncode,
        true.stdout,
        true.stderr,
    )


def test_a_server_forgets_the_plugins_of_the_command_that_started_it(odd_lab, lab, monkeypatch):
    monkeypatch.setattr(fork_server, "_servers", {})
    assert "rlvr-odd" in odd_lab.rlvr("--help").stdout
    (server,) = fork_server._servers.values()
    assert "rlvr-odd" not in lab.rlvr("--help").stdout
    server.close()


def test_a_command_that_is_killed_leaves_a_server_that_goes_on(odd_lab):
    assert odd_lab.rlvr("odd", "shot", check=None).returncode == -signal.SIGKILL
    assert odd_lab.rlvr("--help").stdout.startswith("Usage: rlvr")


@pytest.mark.slow
def test_a_command_past_its_time_is_killed_with_its_children(odd_lab):
    with pytest.raises(subprocess.TimeoutExpired) as caught:
        odd_lab.rlvr("odd", "hangs", timeout=20)
    child = int(caught.value.output)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie"
    assert odd_lab.rlvr("--help").returncode == 0
