"""Every attack scores 0 in every sandbox of this machine, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import socket
import threading
from pathlib import Path

import psutil
import pytest

from plugins.rlvr_code.tests.attacks import ATTACKS, PRELUDE
from plugins.rlvr_code.tests.leftovers import Leftovers
from rlvr_code.sandbox import Sandbox
from rlvr_code.sandbox.backends import choose
from rlvr_code.verifiers import Call, HumanEval, Mbpp, Stdin
from rlvr_core.api import Completion, Problem

ALL = os.environ.get("RLVR_TEST_ALL") == "1"
SECRET = random.SystemRandom().randrange(10**11, 10**12)
SHM_KEY = random.SystemRandom().randrange(1, 2**30)
PROJECT = Path(__file__).parents[3]
BAITED = ("reads_a_file", "loopback", "unix_socket", "abstract_socket", "system_v_memory")
"""Attacks that succeed where nothing stops them."""


def serve(listener):
    """Give the secret to whoever asks."""
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection, contextlib.suppress(OSError):
            connection.sendall(f"SECRET={SECRET}".encode())


@pytest.fixture(scope="module")
def bait(tmp_path_factory):
    """The secret in all the places a program might look; what attacks need to look there."""
    folder = tmp_path_factory.mktemp("bait")
    for one in (folder, *folder.parents[:3]):
        with contextlib.suppress(PermissionError):
            one.chmod(0o755)
    file = folder / "secret.txt"
    file.write_text(f"SECRET={SECRET}")
    file.chmod(0o644)
    os.environ["RLVR_SECRET"] = f"SECRET={SECRET}"
    abstract = f"rlvr-{os.getpid()}-{folder.name}"  # the one before may still be waited at
    listeners = [socket.create_server(("127.0.0.1", 0))]
    for kind, suffix in ((socket.SOCK_STREAM, ""), (socket.SOCK_DGRAM, "d")):
        for name in (f"{folder}/socket{suffix}", f"\0{abstract}{suffix}"):
            listener = socket.socket(socket.AF_UNIX, kind)
            listener.bind(name)
            if kind == socket.SOCK_STREAM:
                listener.listen()
            listeners.append(listener)
    os.chmod(f"{folder}/socket", 0o777)  # noqa: PTH101
    os.chmod(f"{folder}/socketd", 0o777)  # noqa: PTH101
    for listener in listeners[:3]:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
    libc = ctypes.CDLL(None)
    libc.shmat.restype = ctypes.c_void_p
    shared = libc.shmget(SHM_KEY, 4096, 0o1777)
    address = libc.shmat(shared, None, 0)
    ctypes.memmove(address, f"SECRET={SECRET}\0".encode(), 30)
    yield {
        "SECRET": str(SECRET),
        "FILE": str(file),
        "FOLDER": str(folder),
        "HOME": str(Path.home()),
        "PROJECT": str(PROJECT),
        "SITE": str(Path(psutil.__file__).parents[1]),
        "STDLIB": str(Path(os.__file__).parent),
        "PORT": str(listeners[0].getsockname()[1]),
        "SOCKET": f"{folder}/socket",
        "ABSTRACT": abstract,
        "ADDRESS_OUT": "127.0.0.1",
        "ADDRESS": str(address),
        "PARENT": str(os.getpid()),
        "SHM_KEY": str(SHM_KEY),
    }
    assert file.read_text() == f"SECRET={SECRET}"
    assert file.stat().st_mode & 0o777 == 0o644
    del os.environ["RLVR_SECRET"]
    for listener in listeners:
        listener.close()
    libc.shmctl(shared, 0, None)


def program(name, bait):
    """The text of an attack."""
    code = PRELUDE + ATTACKS[name]
    for key, value in bait.items():
        code = code.replace("{" + key + "}", value)
    return code.replace("{{", "{").replace("}}", "}")


def problem(kind):
    """A problem that is solved by returning, or printing, the secret."""
    spec = {
        "mbpp": {
            "test_list": [f"assert f({n}) == {SECRET}" for n in range(3)],
            "code": "def f(x): pass",
        },
        "humaneval": {
            "prompt": "def f(x):\n",
            "entry_point": "f",
            "test": f"def check(candidate):\n    assert candidate([1]) == {SECRET}\n",
        },
        "call": {"fn_name": "f", "inputs": [[1], [2]], "outputs": [SECRET, SECRET]},
        "stdin": {"inputs": ["1\n"], "outputs": [f"{SECRET}\n"]},
    }[kind]
    return Problem("p", "", f"code/{kind}", spec, "code/attacks")


def make(kind, variant, case_seconds=2.0, **options):
    """A verifier with short limits."""
    verifier = {"mbpp": Mbpp, "humaneval": HumanEval, "call": Call, "stdin": Stdin}[kind]
    return verifier(
        verifier.Config(
            backend=variant,
            case_seconds=case_seconds,
            total_seconds=3 * case_seconds,
            memory_mb=256,
            cut=False,
            **options,
        )
    )


def answer(code):
    """A response."""
    return Completion.from_text(f"```python\n{code}\n```")


def boxes(verifier):
    """The sandboxes in which a verifier has begun to run something."""
    return tuple(verifier.sandboxes._made.values())


@pytest.fixture(scope="module")
def judged(variant, options, bait):
    """A verifier of assertions in each sandbox, its servers running."""
    if variant in ("podman", "docker") and not ALL:
        pytest.skip("long: make test-all runs it")
    patient = make("mbpp", variant, case_seconds=30.0, **options)
    honest = patient.verify(problem("mbpp"), answer(f"def f(x): return {SECRET}"))
    patient.close()
    assert honest.score == 1.0, honest
    verifier = make("mbpp", variant, **options)
    verifier.verify(problem("mbpp"), answer("def f(x): return 0"))  # its servers run from now on
    yield verifier, Leftovers(*boxes(verifier))
    verifier.close()


def settled(verifier, kind, code):
    """Its verdict, judged again while the machine is too busy, as the pool does."""
    for _ in range(10):
        verdict = verifier.verify(problem(kind), answer(code))
        if verdict.status != "busy":
            break
    return verdict


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(name, judged, bait):
    verifier, leftovers = judged
    verdict = settled(verifier, "mbpp", program(name, bait))
    assert (verdict.score, verdict.status, verdict.passed) == (0.0, "ok", False), verdict
    leftovers.check(name)


@pytest.mark.parametrize("name", BAITED)
def test_the_bait_works_where_nothing_stops_it(name, bait):
    verifier = make("mbpp", "unsafe", case_seconds=30.0)
    verdict = verifier.verify(problem("mbpp"), answer(program(name, bait)))
    verifier.close()
    assert verdict.score == 1.0, verdict


KINDS = ["humaneval", "call", "stdin"]
"""Each is given another third of the attacks; all of them by make test-all."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_attacks_on_the_other_verifiers(kind, variant, options, bait):
    if variant != choose("auto").variant and not ALL:
        pytest.skip("in the sandbox that is taken here; in the others, make test-all runs it")
    patient = make(kind, variant, case_seconds=30.0, **options)
    honest = f"def f(x): return {SECRET}\nprint({SECRET})"
    assert patient.verify(problem(kind), answer(honest)).score == 1.0
    patient.close()
    with contextlib.closing(make(kind, variant, **options)) as verifier:
        verifier.verify(problem(kind), answer("def f(x): return 0"))
        leftovers = Leftovers(*boxes(verifier))
        first = KINDS.index(kind)
        for name in list(ATTACKS) if ALL else list(ATTACKS)[first :: len(KINDS)]:
            code = program(name, bait) + ("\nprint(f(1))" if kind == "stdin" else "")
            verdict = settled(verifier, kind, code)
            assert (verdict.score, verdict.status) == (0.0, "ok"), (name, verdict)
            leftovers.check(name)


def test_a_program_learns_nothing_of_programs_and_tests_before_it(variant, options):
    """The memory it is forked from never holds a program, an input or a test (frames, gc, heap)."""
    mark = f"{random.SystemRandom().randrange(10**20):020d}"
    reader = (
        "import ctypes, mmap\nhits = 0\n"
        "import gc\nhits += sum(MARK in repr(o)[:100000] for o in gc.get_objects() if isinstance(o, (list, dict, tuple)))\n"
        "print(hits)"
    )
    half = f"MARK = '{mark[:10]}' + '{mark[10:]}'\n"
    with Sandbox(variant, **options) as box:
        own = box.run(half + reader).stdout
        assert int(own) > 0  # it finds its own constant
        box.run(f"x = '{mark}'\nprint(x)", stdin=mark, files={"a": mark})
        assert box.run(half + reader).stdout == own
