"""How the program ends once it is interrupted."""

import subprocess
import sys

import pytest

ENDING = """
import os, signal, sys
from rlvr_core.cli import main as command

class Late:
    def __del__(self, write=os.write, kill=os.kill, me=os.getpid(), term=signal.SIGTERM):
        write(1, b"still here")  # when Python has put the default actions back
        kill(me, term)

command._call = lambda words: {code}
late = Late()
signal.signal(signal.SIGTERM, lambda *_: None)  # as a run has it
sys.exit(command.main())
"""


@pytest.mark.parametrize(("code", "ends"), [(130, 130), (3, -15)])
def test_a_second_signal_does_not_change_how_an_interrupted_program_ends(code, ends):
    script = ENDING.format(code=code)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert "still here" in done.stdout
    assert done.returncode == ends
