"""What programs do with their standard streams works as under ``python main.py``."""

import pytest

from plugins.rlvr_code.tests.programs import read

WRITES = read("streams/writes.txt")


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


READS = read("streams/reads.txt")


@pytest.mark.parametrize("name", READS)
def test_standard_input_has_a_name(name, box):
    result = box.run(READS[name], stdin="7\n8\n")
    assert (result.stdout, result.stderr, result.exit) == ("['7', '8']\n", "", 0)


def test_standard_error_has_a_name(box):
    result = box.run("open('/dev/stderr', 'w').write('6')\nopen('/dev/fd/2', 'wb').write(b'7')")
    assert (result.stdout, result.stderr) == ("", "67")


def test_closing_a_stream_opened_by_name_leaves_the_first_one_open(box):
    program = "for _ in range(3):\n with open('/dev/stdout', 'w') as out: out.write('6')\nprint(7)"
    assert box.run(program).stdout == "6667\n"


@pytest.mark.parametrize("mode", ["w", "r+"])
def test_standard_input_cannot_be_written(mode, box):
    program = (
        f"try:\n with open('/dev/stdin', {mode!r}) as given: given.write('9')\n"
        "except OSError: pass\nprint(input())"
    )
    assert box.run(program, stdin="7").stdout == "7\n"


@pytest.mark.parametrize("name", ["/dev/fd/3", "/dev/fd/", "/dev/tty", "/dev/stdin/", "/dev/fd/00"])
def test_no_other_name_is_a_stream(name, box):
    result = box.run(f"open({name!r}).read()", stdin="7")
    assert result.exit == 1
    assert "open(" in result.stderr


def test_open_is_what_it_was(box):
    program = (
        "import io\nprint(open is io.open, open.__name__)\n"
        "with open('f', 'w', encoding='utf-8', newline='') as f: f.write('\u00e9\\n')\n"
        "with open('f', mode='rb', buffering=0) as f: print(f.read(), type(f).__name__)\n"
        "print(open(0, closefd=False).read())\n"
        "class Has: opened = open\n"
        "with Has().opened('f') as f: print(len(f.read()))\n"
        "try: open('nothing')\nexcept FileNotFoundError as error: print(error.filename)"
    )
    expected = "True open\nb'\\xc3\\xa9\\n' FileIO\n7\n2\nnothing\n"
    assert box.run(program, stdin="7").stdout == expected
