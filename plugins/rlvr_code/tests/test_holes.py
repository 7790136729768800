"""Ways around the judge, below the programs of attacks.py: forged texts, old kernels, killed owners."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlvr_code.inside import codec
from rlvr_code.inside import filter as seccomp
from rlvr_code.judge.compare import same_output, same_value
from rlvr_code.sandbox import answers
from rlvr_code.sandbox.backends import missing_for
from rlvr_code.sandbox.folders import WorkFolder, sweep
from rlvr_code.sandbox.launch import Plan
from rlvr_code.sandbox.limits import Limits
from rlvr_code.sandbox.server import Run, Server
from rlvr_code.verifiers import Mbpp
from rlvr_core.api import Completion, Problem
from rlvr_core.testing.clock import cpu_limit
from tests.support.tables import table

needs_seccomp = pytest.mark.skipif(seccomp.machine() is None, reason="no filter for this machine")

UNDER_LANDLOCK_1 = """
import fcntl, os, signal, socket, struct, sys
from rlvr_code.inside import filter as seccomp, kernel

file, work = sys.argv[1:]
if kernel.landlock_version():
    kernel.landlock_version = lambda: 1
    kernel.restrict_files({os.path.dirname(file): kernel.READ_FILE | kernel.READ_DIR}, work)
os.chdir(work)
kernel.no_new_privileges()
kernel.set_filter(seccomp.bind(seccomp.build(seccomp.machine(), False), os.getpid()))
one, other = socket.socketpair()

def refused(what):
    try:
        what()
    except PermissionError:
        return
    sys.exit(f"not refused: {what}")

refused(lambda: os.truncate(file, 0))
refused(lambda: os.open(file, os.O_RDONLY | os.O_TRUNC))
refused(lambda: os.open(file, 3 | os.O_TRUNC))
for number in (8, 15, 10, 1024, 1026):  # F_SETOWN, F_SETOWN_EX, F_SETSIG, F_SETLEASE, F_NOTIFY
    refused(lambda: fcntl.fcntl(one, number, struct.pack("ii", 1, os.getppid())))
    refused(lambda: fcntl.fcntl(one, number, os.getppid()))
with open("mine", "w+") as mine:
    mine.write("text")
    mine.truncate(2)
    fcntl.lockf(mine, fcntl.LOCK_EX)
fcntl.fcntl(one, fcntl.F_SETFL, fcntl.fcntl(one, fcntl.F_GETFL) | os.O_NONBLOCK)
os.close(fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 0))
print(open("mine").read(), open(file).read())
"""


@needs_seccomp
def test_the_filter_makes_up_for_what_early_landlock_lets_pass(tmp_path):
    """Truncation below version 3, signals by descriptors below version 6."""
    work = tmp_path / "work"
    work.mkdir()
    file = tmp_path / "other" / "file"
    file.parent.mkdir()
    file.write_text("whole")
    done = subprocess.run(
        [sys.executable, "-c", UNDER_LANDLOCK_1, str(file), str(work)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.stdout, done.stderr) == ("te whole\n", "")


def refuse(value):
    raise TypeError(type(value).__name__)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, [2.5, None, True]), [1, [2.5, None, True]]),
        ({"a": (), 1: {2: "b"}, None: 0, (1, "x"): 3}, {"a": [], "1": {"2": "b"}, "None": 0, "(1, 'x')": 3}),
        (-(2**5000), -(2**5000)),
        (float("inf"), float("inf")),
        ("\ud800", "\ud800"),
    ],
)  # fmt: skip
def test_answers_are_read_as_json(value, expected):
    assert answers.read(codec.dumps(value, refuse)) == expected


@pytest.mark.parametrize("value", [{1}, b"x", 1j, range(3), int])
def test_what_json_does_not_have_equals_nothing(value):
    read = answers.read(codec.dumps(value, refuse))
    for expected in (None, 1, "x", [1], {}, [0, 1, 2]):
        assert not same_value(expected, read, 1e-6, any_order=True)


@pytest.mark.parametrize(
    "text",
    [
        *table(__file__, "texts that are no answer"),
        b"",
        b"\xff",
        b"[" * 100_000,
        b'{"t":"int","v":"x"}',
        b'{"t":"float","v":"x"}',
        b'{"t":"dict","v":[1]}',
        b'{"t":"int"}',
        b"9" * 5000,
    ],
)
def test_texts_that_are_no_answer(text):
    with pytest.raises(codec.UnfitError):
        answers.read(text)


@pytest.mark.parametrize("kind", ["set", "frozenset", "dict", "Counter"])
def test_hashes_that_collide_cost_nothing(kind):
    whole = b",".join(
        b'{"t":"int","v":"%s"}' % hex(n * (2**61 - 1)).encode() for n in range(100_000)
    )
    if kind not in ("set", "frozenset"):
        whole = whole.replace(b"}", b"},1]").replace(b"{", b"[{")
    with cpu_limit(20.0, kind):
        answers.read(b'{"t":"%s","v":[%s]}' % (kind.encode(), whole))


def test_numbers_with_common_factors_are_not_reduced():
    one, other = b"1" * 1_000_000, b"1" * 999_999 + b"0"
    text = b'{"t":"Fraction","v":[{"t":"int","v":"%s"},{"t":"int","v":"%s"}]}' % (one, other)
    with cpu_limit(5.0):
        assert isinstance(answers.read(text), answers.Other)


@pytest.mark.parametrize(
    "value",
    [10**5000, [10**5000], {"a": [-(10**5000)]}, [[[[[[[[1]]]]]]]]],
    ids=["number", "list", "dict", "nested"],
)
def test_every_value_can_be_shown_and_sorted(value):
    assert 0 < len(answers.shown(value)) <= 200
    assert same_value([value, 1], [1, value], 0.0, any_order=True)


@pytest.mark.parametrize(
    "value",
    ['1e999', 'NaN', '{"t":"int","v":"0xffffffffffffffffffff"}', '256', '-1', 'true', '[0]', '"0"'],
)  # fmt: skip
def test_a_session_gives_up_pieces_with_a_forged_status(box, value):
    body = f'{{"t":"dict","v":[["v",{value}]]}}'.encode()
    forge = f"import os, struct\nos.write(3, struct.pack('!cI', b'a', {len(body)}) + {body!r})\n"
    with box.session() as session:
        result = session.run(f"{forge}import time\ntime.sleep(600)")
        assert (result.ok, result.reason, session.fresh) == (False, "killed", True)
        assert session.run("print(1)").stdout == "1\n"


OWNER = """
import os, sys, time
from rlvr_code.sandbox import Limits
from rlvr_code.sandbox.launch import Plan
from rlvr_code.sandbox.server import Run, Server

server = Server(Plan.make(sys.argv[1], sys.argv[2] or None))
limits = Limits(wall_seconds=300, cpu_seconds=300)
program = b"import os, time; os.makedirs('a/b'); open('a/b/c', 'w').close(); os.mkdir('d', 0)"
server.open("script", program + b"; time.sleep(300)", {}, limits)
run = Run(server, limits)
folder = server._launched.folder.path
while not os.path.isdir(os.path.join(folder, "d")):
    time.sleep(0.01)
print(folder, flush=True)
run.finish()
"""


@pytest.fixture(params=["landlock", "unsafe"])
def holder(request, interpreter_for):
    """A sandbox whose folder lies on this machine, and the interpreter for it."""
    python = interpreter_for(request.param)
    if missing := missing_for(Plan.make(request.param, python)):
        pytest.skip(missing)
    return request.param, python


STOPS = "def f(x): raise StopIteration"


@pytest.mark.parametrize(
    "test",
    [
        "assert all(a == b for a, b in zip(map(f, [1, 2]), [2, 4]))",
        "assert all(map(f, [1, 2]))",
        "for a, b in zip(map(f, [1, 2]), [2, 4]):\n    assert a == b",
    ],
)
def test_the_end_of_an_iteration_is_not_the_programs_to_say(test):
    """StopIteration out of a function ends ``map``, and the loop of a test with it."""
    verifier = Mbpp(Mbpp.Config(case_seconds=20.0, cut=False))
    problem = Problem(
        "p", "", "code/mbpp", {"test_list": [test], "code": "def f(x): return 2 * x"}, "code/holes"
    )
    for code in (STOPS, "class S(StopIteration): pass\ndef f(x): raise S(1)"):
        verdict = verifier.verify(problem, Completion.from_text(f"```python\n{code}\n```"))
        assert (verdict.score, verdict.status) == (0.0, "ok")
    verifier.close()


@pytest.mark.parametrize("kind", ["dict", "Counter", "OrderedDict"])
def test_keys_within_keys_are_refused(kind):
    """The text of each would be twice as long as that of the one within."""
    key = json.dumps("'\"\\")
    for _ in range(18):
        key = f'{{"t":"{kind}","v":[[{key},1]]}}'
    with pytest.raises(codec.UnfitError):
        answers.read(key.encode())
    with pytest.raises(codec.UnfitError):
        answers.read(b'{"t":"dict","v":[[{"t":"tuple","v":[[1]]},1]]}')


@pytest.mark.parametrize(("expected", "given"), table(__file__, "words that are not the number"))
def test_words_that_only_look_like_the_number(expected, given):
    assert not same_output(expected, given, 1e-6)


def test_words_that_are_the_number():
    for given in ("+.25", "2.5e-1", "0.2500", "25E-2", "0.2500000001"):
        assert same_output("0.25", given, 1e-6), given


@pytest.mark.parametrize(
    ("expected", "given", "same"),
    [
        *table(__file__, "values"),
        (10**400, float("inf"), False),
        (float("nan"), float("nan"), False),
    ],
)
def test_almost_the_same_value(expected, given, same):
    """A whole number that is wrong by a millionth of itself is wrong."""
    assert same_value(expected, given, 1e-6, any_order=False) is same


MANY = """
import os
for i in range({}): os.close(os.open(f"file{{i}}", os.O_CREAT | os.O_WRONLY))
"""


def test_the_number_of_files_is_limited(box, variant):
    """Where the sandbox has a file system of its own."""
    if variant == "landlock":
        pytest.skip("its folder lies on a disk of this machine")
    assert box.run(MANY.format(5000)).ok
    result = box.run(MANY.format(2_000_000), limits=Limits(wall_seconds=60, cpu_seconds=60))
    full = "No space left on device" in result.stderr
    assert result.reason == "files" or (variant == "namespaces" and full)


def test_cleaning_up_is_on_the_time_of_the_program_that_made_the_mess(holder):
    """Else the next program would wait for it, and fail at its own limit."""
    server = Server(Plan.make(*holder))
    limits = Limits(wall_seconds=60, cpu_seconds=60)
    try:
        server.open("script", MANY.format(5000).encode(), {}, limits)
        assert Run(server, limits).finish().ok
        assert list(server._launched.folder.path.iterdir()) == []
        server.close_job()
    finally:
        server.close()


def owner(variant, python):
    """A process that runs a program, and the folder of that."""
    command = [sys.executable, "-c", OWNER, variant, python or ""]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    return process, Path(process.stdout.readline().strip())


def test_folders_of_killed_owners_are_emptied_and_swept(holder):
    """Emptied by the first process inside, removed by the next launch; living owners keep theirs."""
    dead, left = owner(*holder)
    living, kept = owner(*holder)
    try:
        dead.kill()
        dead.wait()
        until = time.monotonic() + 60
        while list(left.iterdir()):
            assert time.monotonic() < until, "it was not emptied"
            time.sleep(0.02)
        WorkFolder(os.geteuid()).close()
        assert not left.exists()
        assert sorted(one.name for one in kept.iterdir()) == ["a", "d"]
    finally:
        for process in (dead, living):
            process.kill()
            process.wait()
            process.stdout.close()
    sweep()


def test_a_folder_is_its_owners_while_that_lives():
    folder = WorkFolder(os.geteuid())
    (folder.path / "file").write_text("x")
    sweep()
    assert (folder.path / "file").exists()
    locked = folder.path / "locked"
    (locked / "in").mkdir(parents=True)
    locked.chmod(0)
    folder.close()
    assert not folder.path.exists()
