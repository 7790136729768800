"""Turns the checks of a task set into pytest tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from rlvr_doctor.datacheck.checks import CHECKS, PER_TAG, Report
from rlvr_doctor.datacheck.judging import Judge
from rlvr_doctor.datacheck.sources import check_source, sources_of


def dataset_conformance(
    source: str,
    *,
    config: Mapping[str, Any] | None = None,
    by: Sequence[str] = (),
    per_tag: int = PER_TAG,
    known: Sequence[str] = (),
) -> Callable[[str], None]:
    """Return a test of everything a task set promises, one pytest case for each promise.

    Example:
        ``test_sums = dataset_conformance("hello/sums", config={"n": 200})``

    Args:
        source: Name of the data set, whose plugin is installed, or a file, as ``rlvr data check``
            takes it.
        config: Options of the data set.
        by: Tags to check apart; if empty, those with few values, in combination.
        per_tag: Problems that are tried of each tag.
        known: Tags (``archetype=choice``) that are answered without the question and cannot be
            otherwise, such as questions with two possible answers; all else is still checked. One
            that stays below the limit must not be named.

    Returns:
        A test function; give it a name that begins with ``test``.
    """
    import pytest

    @cache
    def report() -> Report:
        (named,) = sources_of(source, config or {})
        with Judge(named.verifier) as judge:
            return check_source(named, judge, by=by, per_tag=per_tag)

    @pytest.mark.parametrize("check", CHECKS)
    def test(check: str) -> None:
        guessable = ("blind", "shuffled")
        failures = [fault.text for fault in report().faults if fault.id == check]
        failing = set()
        for tag in report().tags:
            faults = [f"{tag.tag}: {fault.text}" for fault in tag.faults if fault.id == check]
            if faults and tag.tag in known and check in guessable:
                failing.add(tag.tag)
            else:
                failures += faults
        if check == "blind":
            failures += [f"{tag}: is known to fail, and does not" for tag in {*known} - failing]
        assert not failures, "\n".join(failures)

    return test
