"""Packages that are declared are there for programs and tests; others are missed aloud."""

from __future__ import annotations

import pytest

from rlvr_code.packages import shown
from rlvr_code.verifiers import Call, Mbpp, Stdin
from rlvr_core.api import Completion, ConfigError, DataError, Problem

pytest.importorskip("numpy")
NORM = "import numpy as np\ndef norm(v):\n    v = np.asarray(v, dtype=float)\n    return v / np.linalg.norm(v)"
SPEC = {
    "test_list": [
        "import numpy as np\nassert np.allclose(norm([3, 4]), [0.6, 0.8])\nassert norm([1, 0]).shape == (2,)"
    ]
}
HIDDEN = "try:\n    import torch\n    x = 1\nexcept ImportError:\n    x = 0\ndef norm(v): return x"


def verdict(verifier, spec, code, **options):
    judge = verifier(verifier.Config(case_seconds=20.0, total_seconds=60.0, **options))
    problem = Problem("p", "", "code/x", spec, "code/x")
    try:
        judge.check(problem)
        return judge.verify(problem, Completion.from_text(f"```python\n{code}\n```"))
    finally:
        judge.close()


def test_declared_packages_are_there():
    assert verdict(Mbpp, SPEC, NORM, packages=["numpy"]).score == 1.0
    wrong = verdict(Mbpp, SPEC, NORM.replace("/ np", "* np"), packages=["numpy"])
    assert (wrong.score, wrong.status) == (0.0, "ok")
    reads = {"inputs": ["1 2 3\n"], "outputs": ["6\n"]}
    code = "import numpy\nprint(numpy.array(input().split(), dtype=int).sum())"
    assert verdict(Stdin, reads, code, packages=["numpy"]).score == 1.0
    calls = {"fn_name": "f", "inputs": [[[1, 2]]], "outputs": [[[1, 2], [2, 4]]]}
    code = "import numpy\ndef f(v): return numpy.outer([1, 2], v)"
    assert verdict(Call, calls, code, packages=["numpy"]).score == 1.0
    assert (
        verdict(Call, calls, code.replace("[1, 2], v", "[1, 3], v"), packages=["numpy"]).score == 0
    )


def test_others_are_not():
    spec = {"test_list": ["assert norm(1) == 1"]}
    assert verdict(Mbpp, spec, HIDDEN, packages=["numpy"]).score == 0.0


def test_what_is_not_declared_is_said():
    missed = verdict(Mbpp, {"test_list": ["assert list(norm([1])) == [1]"]}, NORM)
    assert (missed.score, missed.parts["undeclared_import"]) == (0.0, 1.0)
    assert "the sandbox has no numpy: see packages" in missed.detail
    with pytest.raises(DataError, match="the tests import numpy"):
        verdict(Mbpp, SPEC, NORM)
    with pytest.raises(ConfigError, match="no-such-package is not installed"):
        shown(["no-such-package"])
