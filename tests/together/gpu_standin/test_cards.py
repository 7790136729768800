"""What a run of Qwen3-1.7B is told on cards of 80 to 24 GiB: the table of docs/speed.md."""

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from tests.together.gpu_standin.apart import apart

HERE = Path(__file__).parent

PAGE = HERE.parents[2] / "docs" / "speed.md"
CASE = {
    "size": "1.7B", "budget": 16_384, "groups": 8, "n": 8, "prompt": 150, "tokens": 512,
}  # fmt: skip
ROWS = re.findall(
    r"^\| (\d+) GiB \| no \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
)
TURN = int(os.environ.get("RLVR_TEST_TURN", "0"), 16) // 11 % 3


def test_the_page_has_three_cards():
    assert [int(card) for card, _ in ROWS] == [48, 40, 24]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the stand-in needs g++")
def test_what_does_not_fit_on_a_card_comes_with_what_was_tried_and_does():
    """One card by the commit's turn; all with RLVR_TEST_ALL."""
    rows = ROWS if "RLVR_TEST_ALL" in os.environ else [ROWS[TURN]]
    printed, _ = apart("rehearsals", [CASE | {"memory": int(card)} for card, _ in rows])
    for (card, told), line in zip(rows, printed.splitlines(), strict=True):
        found = json.loads(line)
        assert "does not fit on the GPU: 16,384 tokens" in found["error"]
        assert f"of {card}.0 GiB were taken" in found["error"]
        fits = [one for one in found["remedies"] if "tried just now, it fits" in one]
        # the page: budget 4,096 (40.4 GiB); recompute all (32.2 GiB)
        known = re.findall(r"(?:budget|recompute) ([\d,]+|all) \(([\d.]+) GiB\)", told)
        assert len(fits) == len(known) == (0 if card == "24" else 2)
        for said, (setting, memory) in zip(fits, known, strict=True):
            assert f": {setting.replace(',', '')}: tried" in said
            assert float(re.search(r"\(([\d.]+) GiB\)", said)[1]) == pytest.approx(
                float(memory), rel=0.03
            )
        if not known:
            assert found["remedies"][0].startswith("no smaller budget down to 662 tokens")
