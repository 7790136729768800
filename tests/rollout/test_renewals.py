"""Which tokens were sampled under new weights: an engine that keeps requests at a sync says so."""

from concurrent.futures import Future

import pytest

from rlvr_core.api import Generation, RunError
from rlvr_core.builtin.asynchronous.renewals import Renewals


def answered(*answers):
    future = Future()
    future.set_result(tuple(answers))
    return future


def generation(version, *versions):
    return Generation((1, 2), (-1.0, -1.0), "x", "stop", version, token_versions=versions)


def run(*renewals):
    """Versions 1, 2, ... and what was unfinished at each, answered before the next sync."""
    seen = Renewals()
    for version, unfinished in enumerate(renewals, 1):
        seen.loaded(version, unfinished)
    seen.loaded(len(renewals) + 1, [])


def test_what_is_said_of_renewed_tokens():
    """Of two that began under version 0, the longer one ends under version 1."""
    run([answered(generation(0)), answered(generation(0, 0, 1))], [], [answered(generation(2))])
    run(*([answered(generation(n - 1, n - 1, n))] for n in range(1, 6)))


def test_requests_that_had_not_begun_are_no_renewals():
    run(*([answered(generation(n), generation(n))] for n in range(1, 6)))


def test_one_renewal_is_not_enough_and_lost_requests_do_not_count():
    lost, failed = Future(), Future()
    lost.cancel()
    failed.set_exception(RunError("x"))
    run([answered(generation(0))], [lost, failed], [lost])


def test_an_engine_that_never_says_so():
    with pytest.raises(RunError, match=r"guard sync: .* amid completions 2 times"):
        run([answered(generation(0))], [], [answered(generation(1), generation(2))])


def test_requests_that_are_still_on_their_way_are_waited_for():
    open_ones, seen = [Future() for _ in range(3)], Renewals()
    for version, future in enumerate(open_ones, 1):
        seen.loaded(version, [future])
    open_ones[0].set_result((generation(0),))
    seen.loaded(4, [])
    open_ones[1].set_result((generation(1),))
    with pytest.raises(RunError, match="guard sync"):
        seen.loaded(5, [])
