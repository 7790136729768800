"""docs/plugins.md says what the code does."""

from __future__ import annotations

import dataclasses
import inspect
import re
from pathlib import Path

from rlvr_core.api import Completion, EvalTask, Group, Judged
from rlvr_core.api import hooks as hookspecs
from rlvr_core.plugins.hookcheck import HOOK_PARAMETERS
from rlvr_core.plugins.registry import KINDS, REGISTERING
from rlvr_devkit.conformance.checks import CHECKS

ROOT = Path(__file__).parents[3]
TUTORIAL, _, HOOKS = (ROOT / "docs" / "plugins.md").read_text().partition("\n## Hooks\n")
HELLO = (ROOT / "examples" / "rlvr_hello" / "rlvr_hello.py").read_text()


def test_every_hook_has_a_heading_with_its_exact_signature():
    wanted = [
        f"{name}{inspect.signature(getattr(hookspecs, name))}".replace("'", "")
        for name in HOOK_PARAMETERS
    ]
    assert re.findall(r"^#### (.*)$", HOOKS, re.MULTILINE) == wanted


def test_every_field_of_an_event_is_named():
    sections = dict(
        re.findall(r"^#### (\w+)\(.*?\n(.*?)(?=^#|\Z)", HOOKS, re.MULTILINE | re.DOTALL)
    )
    events = 0
    for name in HOOK_PARAMETERS:
        wanted = inspect.signature(getattr(hookspecs, name)).parameters.get("event")
        if wanted is not None:
            events += 1
            for field in dataclasses.fields(getattr(hookspecs, wanted.annotation)):
                assert f"`event.{field.name}`" in sections[name]
    assert events == 6


def test_every_registering_hook_has_a_kind():
    assert set(REGISTERING) == {name for name in HOOK_PARAMETERS if name.startswith("register_")}
    assert set(REGISTERING.values()) == {
        *KINDS,
        "command",
        "forward_path",
        "verifier_pool",
    }


def test_the_tutorial_lists_every_check():
    rows = re.findall(r"^\| `([\w-]+)` \| (.*) \|$", TUTORIAL, re.MULTILINE)
    assert rows == [(check.id, check.promise) for check in CHECKS["verifier"]]


def lines_of(code):
    """The lines that matter: without docstrings and layout."""
    code = re.sub(r'""".*?"""', "", code, flags=re.DOTALL)
    return {line.strip() for line in code.splitlines() if line.strip()}


def without_imports(lines):
    return {line for line in lines if not re.match(r"from |import |\w+,$|\)$", line)}


def test_the_tutorial_grows_into_the_example():
    blocks = re.findall(r"```python\n(.*?)```", TUTORIAL, re.DOTALL)
    shown = lines_of("\n".join(block for block in blocks if "conformance" not in block))
    assert without_imports(shown) == without_imports(lines_of(HELLO))
    test = next(block for block in blocks if "conformance" in block)
    assert lines_of(test) == lines_of(
        (ROOT / "examples" / "rlvr_hello" / "tests" / "test_greeting.py").read_text()
    )
    toml = re.search(r"```toml\n(.*?)```", TUTORIAL, re.DOTALL)[1]
    assert lines_of(toml) <= lines_of(
        (ROOT / "examples" / "rlvr_hello" / "pyproject.toml").read_text()
    )


def test_the_example_of_an_evaluation_task_scores_what_has_an_outcome():
    text = (ROOT / "docs" / "evaluation.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (code,) = (block for block in blocks if "class Capitals" in block)
    names = {"__name__": "example"}
    exec(code, names)
    task = names["Capitals"](names["Capitals"].Config())
    assert isinstance(task, EvalTask)
    assert task.sampling.temperature == 0
    problems = task.problems()
    assert len({problem.id for problem in problems}) == 10
    right, wrong, unknown = (
        Group(problem, (Judged(Completion.from_text(""), {}, None, passed),), 0)
        for problem, passed in zip(problems, (True, False, None), strict=False)
    )
    report = task.score([right, wrong, right, unknown])
    assert (report.metrics["accuracy"], report.n) == (2 / 3, 4)
    assert task.score([unknown]).metrics == {}
