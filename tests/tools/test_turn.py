"""The files of slow tests take turns: all turns together are all of them, each once."""

import subprocess
import sys

from tools.turn import ROOT, files_with_slow_tests, part


def test_three_turns_are_all_files_each_once():
    files = files_with_slow_tests()
    assert len(files) > 60
    assert "tests/together/chaos/test_chaos.py" in files
    parts = [part(files, 3, turn) for turn in (7, 8, 9)]
    assert sorted(file for one in parts for file in one) == files
    assert {len(one) for one in parts} <= {len(files) // 3, len(files) // 3 + 1}
    assert part(files, 3, 10) == parts[0]


def test_the_turn_is_a_commit():
    done = subprocess.run(
        [sys.executable, "tools/turn.py", "3"],
        cwd=ROOT,
        env={"RLVR_TEST_TURN": "1c"},  # 28
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == part(files_with_slow_tests(), 3, 1)
