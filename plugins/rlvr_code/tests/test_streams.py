"""What programs do with their standard streams works as under ``python main.py``."""

import pytest

WRITES = {
    "reconfigured": "import sys\nsys.stdout.reconfigure(encoding='utf-8')\nprint(6)",
    "reconfigured_errors": "import sys\nsys.stderr.reconfigure(encoding='utf-8')\nprint(6)",
    "wrapped": (
        "import io, sys\n"
        "sys.stdout = io.TextIOWrapper(sys.stdout.buffer, encoding='utf-8')\nprint(6)"
    ),
    "held_back_to_the_end": (
        "import io, sys\nold, sys.stdout = sys.stdout, io.StringIO()\nprint(6)\n"
        "old.write(sys.stdout.getvalue())"
    ),
    "first_stream_of_the_interpreter": (
        "import io, sys\nsys.stdout = io.StringIO()\nprint(6)\n"
        "sys.__stdout__.write(sys.stdout.getvalue())"
    ),
    "another_stream_of_text": "out = open(1, 'w')\nout.write('6\\n')",
    "another_stream_of_bytes": "import os\nout = os.fdopen(1, 'wb')\nout.write(b'6\\n')",
    "written_by_exit_functions": (
        "import atexit, io, sys\nold, sys.stdout = sys.stdout, io.StringIO()\n"
        "atexit.register(lambda: old.write(sys.stdout.getvalue()))\nprint(6)"
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_output_is_not_lost(name, box):
    result = box.run(WRITES[name])
    assert (result.stdout, result.stderr, result.exit) == ("6\n", "", 0)


def test_output_after_a_failure_is_not_lost_either(box):
    result = box.run("out = open(1, 'w')\nout.write('6\\n')\nraise SystemExit(3)")
    assert (result.stdout, result.exit) == ("6\n", 3)


def test_output_cannot_be_rewound(box):
    result = box.run("import sys\nprint(sys.stdout.seekable(), sys.stdin.readable())")
    assert result.stdout == "False True\n"
