"""Programs that try to pass without solving anything, or to do harm: ``attacks/*.txt``.

Each defines ``f`` or does its deed while it is loaded. The right value is a random number, which
lies about where a program must not get at it: in files, the environment, sockets, shared memory,
the tests. ``found(text)`` of the prelude picks it out of a text. In the files ``### name`` begins
a program, ``{SECRET}`` and the like stand for what the test fills in, and ``{{`` for a brace.
"""

from pathlib import Path

from plugins.rlvr_code.tests.programs import read

FOLDER = Path(__file__).with_name("attacks")
PRELUDE = (FOLDER / "prelude.txt").read_text()
ATTACKS: dict[str, str] = {
    "no_source": "\0\1\2",
    "deep_source": "x = " + "(" * 5000 + "1" + ")" * 5000,
    "long_source": "x = " + "-" * 100_000 + "1",
}
for file in sorted(FOLDER.glob("[0-9]*.txt")):
    programs = read(f"attacks/{file.name}")
    if twice := ATTACKS.keys() & programs.keys():
        raise ValueError(f"{file}: {twice} are there twice")
    ATTACKS |= programs
