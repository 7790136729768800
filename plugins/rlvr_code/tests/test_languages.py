"""Programs in other languages: compiled once, run per test, in the same sandbox."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from rlvr_code import languages
from rlvr_code.languages import Language
from rlvr_code.sandbox.backends import choose
from rlvr_code.verifiers import Stdin
from rlvr_core.api import Completion, ConfigError, MachineError, Problem

SPEC = {"inputs": ["1 2\n", "30 4\n"], "outputs": ["3\n", "34\n"]}
CPP = "#include <iostream>\nint main() { long a, b; std::cin >> a >> b; std::cout << a + b << std::endl; }"
JS = "const n = require('fs').readFileSync(0, 'utf8').split(/\\s+/).map(Number);\nconsole.log(n[0] + n[1]);"
ECHO = Language("Shell", ("sh",), "main.sh", ("sh",), run=("{tool}", "{source}"))

WRONG = {
    "cpp": [
        CPP.replace("a + b", "a - b"),
        "int main() {",
        "int main() { for (;;); }",
        "#include <unistd.h>\nint main() { for (;;) fork(); }",
        '#include <cstdlib>\nint main() { return system("echo 3"); }',
        "#include <vector>\nint main() { std::vector<char> v(1u << 31, 1); return v[5]; }",
        "template <int N> struct A { A<N + 1> a; }; A<0> x; int main() {}",
        '#include "/etc/hostname"\nint main() {}',
    ],
    "javascript": [
        JS.replace("+ n[1]", "- n[1]"),
        "while (true);",
        "console.log(3",
        "require('child_process').execSync('echo 3')",
        "const a = []; for (;;) a.push(new Array(1e6).fill(1))",
    ],
}


@pytest.fixture(scope="module")
def judge():
    """The verdict on a program of a language."""
    if choose("auto").variant == "landlock":
        pytest.skip("no sandbox with process namespaces")
    made = {}

    def verdict(language, text):
        if language not in made:
            if ":" not in language and languages.LANGUAGES[language].missing:
                pytest.skip(f"no {languages.LANGUAGES[language].missing}")
            config = Stdin.Config(language=language, case_seconds=3.0, total_seconds=15.0)
            made[language] = Stdin(config)
        problem = Problem("p", "", "code/stdin", SPEC, "code/x")
        made[language].check(problem)
        return made[language].verify(problem, Completion.from_text(text))

    yield verdict
    for one in made.values():
        one.close()


@pytest.mark.parametrize(("language", "code"), [("cpp", CPP), ("javascript", JS)])
def test_right_programs_pass(language, code, judge):
    for text in (
        f"```{language}\n{code}\n```",
        f"So:\n```\n{code}\n```\nOutput:\n```text\n3\n```",
        code,
    ):
        verdict = judge(language, text)
        assert verdict.score == 1.0, verdict.detail


@pytest.mark.parametrize("language", WRONG)
def test_others_do_not(language, judge):
    for code in WRONG[language]:
        verdict = judge(language, f"```{language}\n{code}\n```")
        assert (verdict.score, verdict.status) == (0.0, "ok"), (code, verdict)
    again = judge(language, {"cpp": CPP, "javascript": JS}[language])
    assert again.score == 1.0, again.detail  # and leave the sandbox as it was


def test_a_language_of_ones_own(monkeypatch, judge):
    monkeypatch.setattr(sys.modules[__name__], "ECHO", ECHO)
    name = f"{__name__}:ECHO"
    assert judge(name, "```sh\nread a b\necho $((a + b))\n```").score == 1.0
    assert judge(name, "```sh\nread a b\necho $((a - b))\n```").score == 0.0


def test_languages_that_are_not_there():
    with pytest.raises(ConfigError, match="cpp, javascript"):
        Stdin(Stdin.Config(language="cobol"))
    with pytest.raises(ConfigError, match="cannot be imported"):
        Stdin(Stdin.Config(language="no_such_module:X"))
    with pytest.raises(MachineError, match="nowhere-cc"):
        Language("X", (), "x", ("nowhere-cc",), run=("./main",)).paths()


def test_what_is_missing_is_said_with_a_remedy(monkeypatch):
    monkeypatch.setattr(languages.shutil, "which", lambda tool: None)
    found = {one.id: one for one in languages.findings()}
    assert found["language/cpp"].text == "not here: no program g++, as, ld"
    assert "apt install g++" in found["language/cpp"].remedy
    assert "apt install nodejs" in found["language/javascript"].remedy
    with pytest.raises(MachineError) as raised:
        languages.LANGUAGES["javascript"].paths()
    assert any("apt install nodejs" in one for one in raised.value.complaints[0].remedy)


@pytest.mark.parametrize("variant", ["landlock", "unsafe"])
def test_a_sandbox_without_process_namespaces_is_refused(variant, monkeypatch):
    """It could not end what a compiler or a runtime starts."""
    verifier = Stdin(Stdin.Config(language="javascript", backend="unsafe"))
    plan = verifier.sandboxes.programs.plan
    monkeypatch.setattr(
        verifier.sandboxes.programs, "plan", dataclasses.replace(plan, variant=variant)
    )
    problem = Problem("p", "", "code/stdin", {"inputs": ["1 2"], "outputs": ["3"]}, "x")
    try:
        with pytest.raises(MachineError, match="one process only") as raised:
            verifier.check(problem)
    finally:
        verifier.close()
    assert any("namespaces" in one for one in raised.value.complaints[0].remedy)
