import pytest

from rlvr_core.api import Completion, Group, Judged, Problem, Verdict
from rlvr_core.record.rundir import RunFolder


@pytest.fixture
def folder(tmp_path):
    return RunFolder.create(
        tmp_path / "runs",
        "demo",
        config_text="run: {name: demo}\n",
        resolved={"train": {"steps": 4}},
    )


@pytest.fixture
def make_group():
    def make(problem_id="p1", texts=("4", "5"), passed=(True, False), version=3):
        problem = Problem(problem_id, "2+2=", "exact", {"answer": "4"}, "sums")
        members = tuple(
            Judged(
                Completion((1, 2), (7, 8), (-0.5, -0.25), (True, False), text, "stop", version),
                {"exact": Verdict(float(right), passed=right, extracted=text)},
                float(right),
                right,
            )
            for text, right in zip(texts, passed, strict=True)
        )
        return Group(problem, members, version)

    return make
