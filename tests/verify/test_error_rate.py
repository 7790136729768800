import pytest

from rlvr_core.api import RunError, Verdict
from rlvr_core.verify.judge import WINDOW, ErrorRate

GOOD = Verdict(1.0)
BAD = Verdict(None, "error", detail="ValueError: no")
SLOW = Verdict(None, "timeout", detail="took longer than 10 s")


def fed(limit, *verdicts, name="math/boxed"):
    guard = ErrorRate(limit)
    for verdict in verdicts:
        guard.observe(name, verdict)
    return guard


def test_a_rate_at_the_limit_is_put_up_with():
    fed(0.05, *[BAD] * 1, *[GOOD] * 19).check()


def test_above_the_limit_the_commonest_complaint_is_named():
    guard = fed(0.05, *[GOOD] * 37, BAD, SLOW, SLOW, name="math/boxed#2")
    with pytest.raises(RunError) as caught:
        guard.check()
    message = str(caught.value)
    assert "'math/boxed#2' failed on 3 of its last 40 verdicts" in message
    assert "2 times: timeout: took longer than 10 s" in message
    assert "rlvr verify math/boxed FILE" in message


def test_few_verdicts_are_no_rate():
    fed(0.05, *[BAD] * 19).check()
    with pytest.raises(RunError):
        fed(0.05, *[BAD] * 20).check()


def test_unscorable_is_no_error():
    fed(0.0, *[Verdict(None, "unscorable")] * 50).check()


def test_old_verdicts_are_forgotten_and_verifiers_kept_apart():
    guard = fed(0.05, *[BAD] * 100, *[GOOD] * WINDOW)
    guard.check()
    for _ in range(20):
        guard.observe("other", SLOW)
    with pytest.raises(RunError, match="'other'"):
        guard.check()
