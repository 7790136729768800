"""Where tests and their helpers stand, and what they may import."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITES = [
    ROOT / "tests",
    *sorted(ROOT.glob("plugins/*/tests")),
    *sorted(ROOT.glob("examples/*/tests")),
]
FILES = [file for suite in SUITES for file in sorted(suite.rglob("*.py"))]
PLUGINS = {folder.name for folder in (ROOT / "plugins").iterdir() if folder.is_dir()}
CORE = [
    file
    for file in FILES
    if file.is_relative_to(ROOT / "tests") and not file.is_relative_to(ROOT / "tests" / "together")
]


def imports(file, *, at_once=False):
    """The modules that a file imports, with the names that it takes from them.

    At once: those that it imports when it is imported itself.
    """
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in tree.body if at_once else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def name(file):
    return file.relative_to(ROOT).as_posix()


def test_no_test_changes_the_path_of_modules():
    """Helpers are imported as ``tests.support.x``; a plugin for one test is put on by pytest."""
    changes = [
        f"{name(file)}:{node.lineno}"
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in ("insert", "append")
        and ast.unparse(node.value) == "sys.path"
    ]
    assert changes == []


def test_no_module_imports_a_test_or_a_conftest():
    wrong = [
        f"{name(file)} imports {module}"
        for file in FILES
        for module in imports(file)
        if re.search(r"(^|\.)(test_\w+|conftest)$", module)
        and (ROOT / f"{module.replace('.', '/')}.py").exists() | ("." not in module)
    ]
    assert wrong == []


def test_helpers_of_the_core_s_tests_are_in_support():
    elsewhere = [
        name(file)
        for file in CORE
        if not file.is_relative_to(ROOT / "tests" / "support")
        and not re.fullmatch(r"(test_\w+|conftest)\.py", file.name)
    ]
    assert elsewhere == []


def test_the_core_s_tests_import_no_plugin():
    """But in a function, where the test is skipped if the plugin is not there."""
    wrong = [
        f"{name(file)} imports {module}"
        for file in CORE
        for module in imports(file, at_once=True)
        if module.partition(".")[0] in {*PLUGINS, "plugins"}
    ]
    assert wrong == []


@pytest.mark.parametrize("plugin", sorted(PLUGINS))
def test_each_plugin_has_tests(plugin):
    assert list((ROOT / "plugins" / plugin / "tests").rglob("test_*.py"))
