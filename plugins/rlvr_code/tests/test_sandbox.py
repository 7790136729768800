"""What a program gets, and what comes back of it, in every sandbox this machine has."""

from __future__ import annotations

import threading
import time

import psutil
import pytest

from rlvr_code.sandbox import Limits, Sandbox
from rlvr_core.api import MachineError, RunError


def test_output_status_and_traceback(box):
    result = box.run("import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(3)")
    assert (result.stdout, result.stderr, result.exit) == ("out\n", "err\n", 3)
    assert result.reason == "exit"
    assert not result.ok
    failed = box.run("def f():\n    return 1 / 0\n\nf()")
    assert failed.exit == 1
    assert 'File "main.py", line 2, in f\n    return 1 / 0' in failed.stderr
    assert failed.stderr.startswith('Traceback (most recent call last):\n  File "main.py", line 4')


@pytest.mark.parametrize("way", ["exit", "quit", "sys.exit"])
def test_exit_is_there(box, way):
    result = box.run(f"import sys\nprint('before')\n{way}(2)\nprint('after')")
    assert (result.stdout, result.exit) == ("before\n", 2)
    assert box.run(f"import sys\n{way}()").ok


def test_input_files_and_folder(box):
    program = "import os, helper\nprint(input(), helper.x, open('data/a.txt').read(), os.listdir())"
    files = {"helper.py": "x = 7", "data/a.txt": "inside"}
    result = box.run(program, stdin="line\nmore", files=files)
    assert result.stdout == "line 7 inside ['helper.py', 'data']\n" or sorted(
        eval(result.stdout.partition("inside ")[2])
    ) == ["data", "helper.py"]


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", "", "a\0b"])
def test_files_stay_in_the_folder(box, name):
    with pytest.raises(ValueError, match="relative path"):
        box.run("", files={name: "x"})


def test_nothing_is_left_for_the_next_program(box):
    box.run(
        "open('left', 'w').write('x')\nimport builtins, os\nbuiltins.left = 1\nos.mkdir('d', 0)"
    )
    result = box.run("import os\nprint(os.listdir('.'), 'left' in dir(__builtins__))")
    assert result.stdout == "[] False\n"


def test_threads_atexit_and_main(box):
    program = (
        "import atexit, threading, time\n"
        "atexit.register(print, 'exit')\n"
        "go = threading.Event()\nthreading.Thread(target=lambda: (go.wait(), print('thread'))).start()\n"
        "if __name__ == '__main__': print('main')\ngo.set()"
    )
    assert box.run(program).stdout == "main\nthread\nexit\n"


def test_a_few_threads_fit_into_the_memory(box):
    program = (
        "import threading\ngo = threading.Event()\n"
        "many = [threading.Thread(target=go.wait) for _ in range(20)]\n"
        "for one in many: one.start()\n"
        "print(threading.active_count())\ngo.set()"
    )
    assert box.run(program).stdout == "21\n"


def test_wall_limit(box):
    result = box.run("import time\ntime.sleep(60)", limits=Limits(wall_seconds=0.3))
    assert (result.reason, result.exit) == ("wall", -9)
    assert result.seconds < 30


def test_cpu_limit(box):
    result = box.run("while True: pass", limits=Limits(cpu_seconds=1, wall_seconds=60))
    assert result.reason == "cpu"


def test_memory_limit(box):
    result = box.run("x = bytearray(200 << 20)", limits=Limits(memory_mb=100))
    assert result.stderr.endswith("MemoryError\n")
    assert box.run("x = bytearray(200 << 20)", limits=Limits(memory_mb=300)).ok


def test_file_size_and_number_of_files(box):
    result = box.run("open('f', 'wb').write(bytes(3 << 20))", limits=Limits(file_mb=1))
    assert "File too large" in result.stderr
    result = box.run("x = [open('/dev/null') for _ in range(100)]", limits=Limits(files=50))
    assert "Too many open files" in result.stderr


def test_output_is_cut_in_the_middle(box):
    result = box.run("for n in range(100_000): print(n)", limits=Limits(output_kb=4))
    assert result.ok
    assert result.stdout.startswith("0\n1\n2\n")
    assert result.stdout.endswith("99998\n99999\n")
    assert result.dropped[0] == sum(len(f"{n}\n") for n in range(100_000)) - 4096
    assert f"[... {result.dropped[0]:,} bytes left out ...]" in result.stdout


def test_output_that_is_no_text(box):
    result = box.run("import os\nos.write(1, b'a\\xff\\x00b')\nprint('\\ud800')")
    assert result.stdout.startswith("a\ufffd\x00b")


def test_source_that_is_no_python(box):
    for source in ("def f(:", "x = '\0'", "(" * 500, "\ud800", "# -*- coding: nonsense -*-\nx=1"):
        result = box.run(source)
        assert result.exit in (0, 1)
    assert "SyntaxError" in box.run("def f(:").stderr


def test_randomness_differs_between_programs_and_hashing_does_not(box):
    program = "import random\nprint(random.random(), hash('a'))"
    first, second = (box.run(program).stdout.split() for _ in range(2))
    assert first[0] != second[0]
    assert first[1] == second[1]


def test_session_keeps_its_names_until_it_is_killed(box):
    with box.session(files={"a.txt": "A"}, limits=Limits(wall_seconds=30)) as session:
        assert session.fresh
        assert session.run("x = open('a.txt').read()\nprint(x)").stdout == "A\n"
        second = session.run("x += 'B'\nprint(x)\nprint(undefined)")
        assert (second.stdout, second.exit, second.reason) == ("AB\n", 1, "exit")
        assert 'File "cell 2", line 3' in second.stderr
        late = session.run("import time\nprint('before')\ntime.sleep(60)", seconds=0.5)
        assert (late.reason, late.stdout) == ("wall", "")  # it had not been written out
        assert session.fresh
        assert "NameError" in session.run("x").stderr
        assert session.run("import os\nos._exit(5)").exit == 5
        assert session.run("import sys\nsys.exit(4)").exit == 4
    with pytest.raises(RunError, match="closed"):
        session.run("1")
    assert box.run("print(1)").ok


def test_t67_programs_at_the_same_time_keep_their_own_limits(variant, options):
    with Sandbox(variant, **options, size=4) as box:
        found = {}
        program = "import os, time\nprint(os.listdir())\nopen('f', 'w')\ntime.sleep(3)"
        limits = {
            0: Limits(wall_seconds=0.3),
            1: Limits(wall_seconds=20),
            2: Limits(wall_seconds=1),
        }
        threads = [
            threading.Thread(
                target=lambda key=key: found.update({key: box.run(program, limits=limits[key])})
            )
            for key in limits
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert {key: one.reason for key, one in found.items()} == {0: "wall", 1: "exit", 2: "wall"}
        assert found[0].seconds < found[2].seconds < found[1].seconds
        assert found[1].stdout == "[]\n"  # each has a folder of its own


def test_a_dead_server_is_replaced(box):
    assert box.run("print(1)").ok
    (server,) = box._idle
    server._launched.process.kill()
    server._launched.process.wait()
    assert box.run("print(2)").stdout == "2\n"


def test_several_processes_where_there_are_namespaces(box, variant):
    program = (
        "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0); print('parent')\n"
        "else: print('child', flush=True); os._exit(0)"
    )
    assert "Resource temporarily unavailable" in box.run(program).stderr
    if variant == "landlock":
        with pytest.raises(MachineError, match="one process only"):
            box.run(program, limits=Limits(processes=2))
    else:
        assert box.run(program, limits=Limits(processes=2)).stdout == "child\nparent\n"


def test_processes_left_behind_are_killed_and_buried(box, variant):
    if variant == "landlock":
        pytest.skip("one process only")
    program = (
        "import os, time\nfor _ in range(3):\n"
        "    if not os.fork(): os.setsid(); time.sleep(1000)\nprint('parent')"
    )
    limits = Limits(processes=4, threads=0)
    for _ in range(3):  # each has room for as many again
        result = box.run(program, limits=limits)
        assert (result.stdout, result.stderr, result.exit) == ("parent\n", "", 0)
    assert box.run("print(1)").stdout == "1\n"


def test_a_server_keeps_nothing_open_of_programs_before(variant, options):
    with Sandbox(variant, **options) as box:
        assert box.run("print(1)").ok
        inside = psutil.Process(box._idle[0]._launched.process.pid)
        inside = [inside, *inside.children(recursive=True)]
        try:
            before = {one.pid: one.num_fds() for one in inside}
        except psutil.AccessDenied:
            pytest.skip("only root may count them")
        for _ in range(3):
            box.run("print(input())", stdin="x", files={"a": "b"})
            assert box.run("while True: pass", limits=Limits(wall_seconds=0.1)).reason == "wall"
            with box.session() as session:
                session.run("x = 1")
        until = time.monotonic() + 20
        while any(one.num_fds() > before[one.pid] for one in inside):
            assert time.monotonic() < until, "a descriptor was left open"
            time.sleep(0.02)


def test_t68_unsafe_is_never_taken_by_itself():
    from rlvr_code.sandbox.backends import ORDER, WEAKNESSES, findings

    assert "unsafe" not in ORDER
    found = {one.id: one for one in findings()}
    assert set(found) == {f"sandbox/{variant}" for variant in WEAKNESSES}
    taken = [one.id for one in found.values() if "is taken" in one.text]
    assert taken == [] or taken[0] != "sandbox/unsafe"


def test_t68_no_sandbox_is_an_error_that_says_why(monkeypatch):
    from rlvr_code.sandbox import backends

    monkeypatch.setattr(backends, "missing_for", lambda plan: f"{plan.variant} is broken")
    with pytest.raises(MachineError, match="no sandbox") as caught:
        Sandbox()
    assert "landlock: landlock is broken" in str(caught.value)
    assert "backend: unsafe" in str(caught.value)
