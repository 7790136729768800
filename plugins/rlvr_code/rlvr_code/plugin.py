"""Registers what rlvr-code offers."""

from __future__ import annotations

from rlvr_core.api import Finding, Registrar, hookimpl


@hookimpl
def register_datasets(registrar: Registrar) -> None:
    """Add the data sets."""
    add = registrar.add
    add("mbpp", "rlvr_code.mbpp:Mbpp", summary="MBPP: 974 functions, full or sanitised.")
    add("humaneval", "rlvr_code.humaneval:HumanEval", summary="HumanEval: 164 function bodies.")
    add("stdin", "rlvr_code.tested:Stdin", summary="Programs that read and write text.")
    add("call", "rlvr_code.tested:Call", summary="Functions called with arguments.")
    add("acecode", "rlvr_code.acecode:AceCode", summary="AceCode: 87,000 functions.")


@hookimpl
def register_verifiers(registrar: Registrar) -> None:
    """Add the verifiers."""
    add = registrar.add
    add("mbpp", "rlvr_code.verifiers:Mbpp", summary="Every assertion of test_list holds.")
    add("humaneval", "rlvr_code.verifiers:HumanEval", summary="check() accepts the function.")
    add("stdin", "rlvr_code.verifiers:Stdin", summary="Each input gives the expected output.")
    add("call", "rlvr_code.verifiers:Call", summary="Each call returns the expected value.")
    add("pytest", "rlvr_code.verifiers:Pytest", summary="Every pytest or unittest test passes.")


@hookimpl
def register_eval_tasks(registrar: Registrar) -> None:
    """Add the evaluations."""
    add = registrar.add
    add("mbpp-test", "rlvr_code.evals:MbppTest", summary="MBPP's 500 test problems, three-shot.")
    add("humaneval", "rlvr_code.evals:HumanEvalTest", summary="The 164 problems of HumanEval.")


@hookimpl
def examine() -> list[Finding]:
    """Try each kind of sandbox and each language; say what a sandbox does not stop."""
    from rlvr_code import languages
    from rlvr_code.sandbox.backends import findings

    return [*findings(), *languages.findings()]
