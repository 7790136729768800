"""Registers what rlvr-code offers."""

from __future__ import annotations

from rlvr_core.api import Finding, Registrar, hookimpl


@hookimpl
def register_datasets(registrar: Registrar) -> None:
    """Add the data sets."""
    registrar.add(
        "mbpp",
        "rlvr_code.mbpp:Mbpp",
        summary="MBPP: 974 short functions tested by assertions, full or sanitised.",
    )
    registrar.add(
        "humaneval",
        "rlvr_code.humaneval:HumanEval",
        summary="HumanEval: 164 function bodies; to evaluate on.",
    )
    registrar.add(
        "stdin",
        "rlvr_code.tested:Stdin",
        summary="Programs that read and write text: APPS, CodeContests and the like.",
    )
    registrar.add(
        "call",
        "rlvr_code.tested:Call",
        summary="Functions called with arguments: APPS, LeetCode and the like.",
    )
    registrar.add(
        "acecode",
        "rlvr_code.acecode:AceCode",
        summary="AceCode: 87,000 functions tested by assertions.",
    )


@hookimpl
def register_verifiers(registrar: Registrar) -> None:
    """Add the verifiers."""
    registrar.add(
        "mbpp",
        "rlvr_code.verifiers:Mbpp",
        summary="Every assertion of test_list holds, judged outside the program's sandbox.",
    )
    registrar.add(
        "humaneval",
        "rlvr_code.verifiers:HumanEval",
        summary="The function check accepts the program's function.",
    )
    registrar.add(
        "stdin",
        "rlvr_code.verifiers:Stdin",
        summary="The program turns each input into the expected output.",
    )
    registrar.add(
        "call",
        "rlvr_code.verifiers:Call",
        summary="The program's function returns the expected values.",
    )
    registrar.add(
        "pytest",
        "rlvr_code.verifiers:Pytest",
        summary="Every test of a file of pytest or unittest passes.",
    )


@hookimpl
def register_eval_tasks(registrar: Registrar) -> None:
    """Add the evaluations."""
    registrar.add(
        "mbpp-test",
        "rlvr_code.evals:MbppTest",
        summary="The 500 test problems of MBPP, three worked examples in front.",
    )
    registrar.add(
        "humaneval",
        "rlvr_code.evals:HumanEvalTest",
        summary="The 164 problems of HumanEval.",
    )


@hookimpl
def examine() -> list[Finding]:
    """Each kind of sandbox, tried out, and what it does not stop; each language."""
    from rlvr_code import languages
    from rlvr_code.sandbox.backends import findings

    return [*findings(), *languages.findings()]
