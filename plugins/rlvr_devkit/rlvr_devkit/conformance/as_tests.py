"""Turns the checks into pytest tests."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_core.api import Example
from rlvr_core.toolkit import load_host
from rlvr_devkit.conformance.cases import load_cases
from rlvr_devkit.conformance.checks import CHECKS
from rlvr_devkit.conformance.of_plugins import components_of, record_of
from rlvr_devkit.conformance.subject import Check, Subject, Unchecked, example_of, results


def component_conformance(
    kind: str,
    component: Any,
    example: Example | None = None,
) -> Callable[..., None]:
    """Return a test of everything a component promises, one pytest case for each promise.

    Example:
        ``test_lion = component_conformance("optimizer", Lion, Example(config={"beta1": 0.9}))``

    Args:
        kind: One of ``CHECKS``.
        component: The class of the component; for a command or a forward path, its function.
        example: Data to test it with; None for the component's ``example()``.

    Returns:
        A test function; give it a name that begins with ``test``.
    """
    import pytest

    used_example = example_of(component) if example is None else example
    checks = [check for check in CHECKS[kind] if check.applies(component)]

    @pytest.mark.parametrize("check", checks, ids=lambda check: check.id)
    def test(check: Check, tmp_path: Path) -> None:
        try:
            check.run(Subject(kind, component, used_example, tmp_path))
        except Unchecked as reason:
            pytest.skip(str(reason))

    return test


def conformance(
    verifier: type[Any],
    *,
    cases: str | Path | Sequence[Mapping[str, Any]],
    config: Mapping[str, Any] | None = None,
) -> Callable[..., None]:
    """Return a test of everything a verifier promises, one pytest case for each promise.

    Example:
        ``test_boxed = conformance(Boxed, cases="cases.jsonl")``

    Args:
        verifier: The verifier's class.
        cases: A JSON-lines file (a relative path starts at the calling file), or rows; see
            ``load_cases``.
        config: Options to construct it with.

    Returns:
        A test function; give it a name that begins with ``test``.

    Raises:
        DataError: If the cases are malformed.
    """
    if isinstance(cases, (str, Path)):
        cases = Path(sys._getframe(1).f_globals["__file__"]).parent / cases
    load_cases(cases)
    return component_conformance("verifier", verifier, Example(config or {}, cases))


def plugin_conformance(
    name: str,
    examples: Mapping[str, Example] | None = None,
    *,
    without: Collection[str] = (),
) -> Callable[..., None]:
    """Return a test of an installed plugin and of each component that it registers.

    Example:
        ``test_math = plugin_conformance("math", {"math/mixed": Example(config={"path": ROWS})})``

    Args:
        name: Name of the plugin.
        examples: Data to test components with, by full name; others use their ``example()``.
        without: Full names of components that cannot be tried; say why beside them.

    Returns:
        A test function; give it a name that begins with ``test``.

    Raises:
        PluginError: If there is no such plugin.
        ValueError: If a name in ``examples`` or ``without`` is none of its components'.
    """
    import pytest

    host = load_host()
    record = record_of(host, name)
    entries = {f"{entry.kind} {entry.name}": entry for entry in components_of(host, record)}
    known = {entry.name for entry in entries.values()}
    odd = sorted({*(examples or {}), *without} - known)
    if odd:
        raise ValueError(f"plugin '{name}' registers no {', '.join(odd)}")
    tried = [key for key, entry in entries.items() if entry.name not in without]

    @pytest.mark.parametrize("part", ["plugin", *tried])
    def test(part: str) -> None:
        if part == "plugin":
            outcomes = list(results("plugin", record, CHECKS["plugin"]))
        else:
            entry = entries[part]
            example = (examples or {}).get(entry.name)
            kind = str(entry.kind)
            outcomes = list(results(kind, entry.load(), CHECKS[kind], example))
        broken = [
            f"{outcome.check.id}: {outcome.detail}"
            for outcome in outcomes
            if outcome.status == "broken"
        ]
        assert not broken, "\n".join(broken)

    return test
