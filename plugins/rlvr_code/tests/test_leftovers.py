"""The check for what programs leave behind sees each kind of thing that is put there."""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest

from rlvr_code.sandbox import Sandbox

_SPEC = importlib.util.spec_from_file_location(
    "leftovers", Path(__file__).with_name("leftovers.py")
)
leftovers = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(leftovers)


@contextlib.contextmanager
def process(box, watch, **more):
    with subprocess.Popen(["/bin/sleep", "600"], **more) as one:
        yield
        one.kill()


def process_of_its_user(box, watch):
    if not watch._users:
        pytest.skip("only under root has a sandbox a user of its own")
    return process(box, watch, user=next(iter(watch._users)), start_new_session=True)


@contextlib.contextmanager
def session(box, watch):
    with box.session() as one:
        one.run("x = 1")
        yield


@contextlib.contextmanager
def thread(box, watch):
    go = threading.Event()
    one = threading.Thread(target=go.wait)
    one.start()
    yield
    go.set()
    one.join()


@contextlib.contextmanager
def descriptor(box, watch):
    with Path(os.devnull).open():
        yield


@contextlib.contextmanager
def file(box, watch):
    path = Path("/tmp") / f"left-{os.getpid()}"
    path.touch()
    yield
    path.unlink()


@contextlib.contextmanager
def file_in_the_folder(box, watch):
    launched = box._idle[0]._launched
    pids = watch._processes()[0]
    folders = [Path(f"/proc/{pid}/root/work") for pid in pids]
    folder = launched.folder.path if launched.folder else next(filter(_seen, folders), None)
    if folder is None:
        pytest.skip("only root can look into it from outside")
    path = folder / "seen"
    path.touch()
    if watch._users:
        os.chown(path, *2 * [next(iter(watch._users))])
    yield
    path.unlink(missing_ok=True)


def _seen(folder):
    with contextlib.suppress(OSError):
        return folder.is_dir() and not folder.parent.samefile("/")


@contextlib.contextmanager
def socket_with_a_name(box, watch):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(f"\0left-{os.getpid()}")
        yield


@contextlib.contextmanager
def shared_memory(box, watch):
    libc = ctypes.CDLL(None)
    number = libc.shmget(leftovers.KEYS[0], 4096, 0o1600)
    yield
    libc.shmctl(number, 0, None)


THINGS = {
    process: "children",
    process_of_its_user: "processes of the sandbox's users elsewhere",
    session: "children",
    thread: "'threads'",
    descriptor: "'descriptors'",
    file: "files",
    file_in_the_folder: "folders",
    socket_with_a_name: "sockets",
    shared_memory: "shared memory",
}


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.__name__)
def test_what_is_left_is_seen(thing, variant, options):
    if thing is process_of_its_user and variant in ("podman", "docker"):
        pytest.skip("a container's processes are known by their user")
    with Sandbox(variant, **options, size=2) as box:
        watch = leftovers.Leftovers(box)
        watch.check()
        with thing(box, watch), pytest.raises(AssertionError, match=THINGS[thing]):
            watch.check("a program", seconds=0.3)


def test_leftovers_are_looked_for_where_nothing_is_left(variant, options):
    with Sandbox(variant, **options) as box:
        watch = leftovers.Leftovers(box)
        for code in ("print(1)", "1 / 0", "open('x', 'w')", "import os; os.kill(os.getpid(), 9)"):
            box.run(code)
            watch.check(code)


def test_what_is_still_being_buried_does_not_count_as_what_was_there_before(variant, options):
    if variant in ("podman", "docker"):
        pytest.skip("a container's processes are known by their user")
    with Sandbox(variant, **options) as box:
        users = leftovers.Leftovers(box)._users
        if not users:
            pytest.skip("only under root has a sandbox a user of its own")
        one = subprocess.Popen(["/bin/sleep", "2"], user=next(iter(users)), start_new_session=True)
        burial = threading.Thread(target=one.wait)
        burial.start()
        watch = leftovers.Leftovers(box)
        assert not burial.is_alive()
        watch.check()
