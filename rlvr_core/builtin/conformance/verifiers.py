"""Turns the checks into pytest tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_core.builtin.conformance.cases import load_cases
from rlvr_core.builtin.conformance.checks import VERIFIER_CHECKS, Check, Subject


def conformance(
    verifier: type[Any],
    *,
    cases: str | Path | Sequence[Mapping[str, Any]],
    config: Mapping[str, Any] | None = None,
    seconds: float = 2.0,
) -> Callable[[Check], None]:
    """A test of everything a verifier promises, one pytest case for each promise.

    Example:
        ``test_boxed = conformance(Boxed, cases="cases.jsonl")``

    Args:
        verifier: Its class.
        cases: A JSON-lines file (a relative path starts at the calling file), or rows; see
            ``load_cases``.
        config: Options to construct it with.
        seconds: Processor time one verdict may take. One that is not there after three times
            that and 5 s has hung.

    Returns:
        A test function; give it a name that begins with ``test``.

    Raises:
        DataError: If the cases are malformed.
    """
    import pytest

    if isinstance(cases, (str, Path)):
        cases = Path(sys._getframe(1).f_globals["__file__"]).parent / cases
    subject = Subject(verifier, config or {}, load_cases(cases), seconds)
    checks = [c for c in VERIFIER_CHECKS if not c.needs or hasattr(verifier, c.needs)]

    @pytest.mark.parametrize("check", checks, ids=lambda check: check.id)
    def test(check: Check) -> None:
        check.run(subject)

    return test
