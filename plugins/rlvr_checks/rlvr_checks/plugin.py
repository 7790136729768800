"""Registers what rlvr-checks offers."""

from __future__ import annotations

from rlvr_core.api import Registrar, hookimpl


@hookimpl
def register_datasets(registrar: Registrar) -> None:
    """Add the datasets."""
    registrar.add(
        "gpqa",
        "rlvr_checks.choice.datasets:Gpqa",
        summary="GPQA: questions of experts in biology, physics and chemistry, four options.",
    )
    registrar.add(
        "mmlu_pro",
        "rlvr_checks.choice.datasets:MmluPro",
        summary="MMLU-Pro: 12,032 questions of 14 subjects, up to ten options.",
    )
    registrar.add(
        "supergpqa",
        "rlvr_checks.choice.datasets:SuperGpqa",
        summary="SuperGPQA: 26,529 questions of 285 fields, up to ten options.",
    )
    registrar.add(
        "commands",
        "rlvr_checks.structured.commands:Commands",
        summary="Generated commands that are wanted as JSON; a tiny model learns to write it.",
    )


@hookimpl
def register_verifiers(registrar: Registrar) -> None:
    """Add the verifiers."""
    registrar.add(
        "choice",
        "rlvr_checks.choice.verifier:ChoiceVerifier",
        summary="Multiple choice: the answer names the right option, by letter or text.",
    )
    registrar.add(
        "first-of",
        "rlvr_checks.first_of:FirstOf",
        summary="A rule first; another verifier only where the rule fails an answer.",
    )
    registrar.add(
        "json",
        "rlvr_checks.structured.json_verifier:JsonVerifier",
        summary="JSON that fits a schema, equals a value, or both.",
    )
    registrar.add(
        "tool-call",
        "rlvr_checks.structured.tool_call:ToolCallVerifier",
        summary="The expected tool calls, in any tool format, compared by value.",
    )
    registrar.add(
        "sql",
        "rlvr_checks.structured.sql:SqlVerifier",
        summary="A SELECT that gives what the reference gives, run in SQLite.",
    )
    registrar.add(
        "judge",
        "rlvr_checks.openai.judge:Judge",
        summary="A language model scores the completion by a rubric.",
    )
    registrar.add(
        "degenerate",
        "rlvr_checks.degenerate:Degenerate",
        summary="Whether a text repeats itself or is gibberish; goes beside another.",
    )


@hookimpl
def register_engines(registrar: Registrar) -> None:
    """Add the engines."""
    registrar.add(
        "openai",
        "rlvr_checks.openai.engine:OpenAIEngine",
        summary="A model behind OpenAI's HTTP interface: evaluates openai:NAME, cannot train.",
    )


@hookimpl
def register_eval_tasks(registrar: Registrar) -> None:
    """Add the eval tasks."""
    registrar.add(
        "commands-heldout",
        "rlvr_checks.structured.commands:CommandsHeldout",
        summary="Unseen commands of checks/commands, sampled at temperature 1.",
    )
    registrar.add(
        "commands-heldout-greedy",
        "rlvr_checks.structured.commands:CommandsHeldoutGreedy",
        summary="The same commands, greedy.",
    )
