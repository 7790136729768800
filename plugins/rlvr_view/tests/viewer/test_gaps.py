"""Guard ``view/gaps``, in a run whose engine tells log-probs that are off by a known amount."""

from __future__ import annotations

import base64
import json

import numpy as np

from rlvr_core.testing.run_lab import lab, make_lab, model_dir, toy_site
from rlvr_view.viewer.gaps import add_gaps

__all__ = ["lab", "make_lab", "model_dir", "toy_site"]

ENGINE = """
from dataclasses import replace

from rlvr_core.engines.transformers import TransformersEngine


class Off(TransformersEngine):
    def submit(self, request):
        future = super().submit(request)
        result = future.result
        future.result = lambda *arguments: tuple(
            replace(one, logprobs=tuple(value - 0.5 for value in one.logprobs))
            for one in result(*arguments)
        )
        return future
"""


def test_a_run_records_the_gap_of_each_token(lab):
    """The engine's log-probs are half a nat too low, so each gap is +0.5."""
    (lab.folder / "mine.py").write_text(ENGINE)
    run = lab.run(
        engine="./mine.py:Off",
        guards=[{"use": "core/parity", "off": True}, "view/gaps"],
        train={"steps": 2},
    )
    recorded = [
        json.loads(line) for line in (run / "traces" / "gaps.jsonl").read_text().splitlines()
    ]
    assert [line["step"] for line in recorded] == [0, 1]
    rows = [
        json.loads(line) for line in (run / "traces" / "rollouts.jsonl").read_text().splitlines()
    ]
    trained = 0
    for row in rows:
        add_gaps(row, run / "traces")
        for completion in row["completions"]:
            if gaps := completion.get("gaps"):
                trained += 1
                assert len(gaps) == len(completion["token_ids"])
                np.testing.assert_allclose(gaps, 0.5, atol=1e-3)
    assert trained == sum(len(line["gaps"]) for line in recorded) > 0
    assert all(base64.b64decode(value) for line in recorded for value in line["gaps"].values())
