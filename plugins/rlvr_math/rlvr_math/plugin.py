"""Registers what rlvr-math offers."""

from __future__ import annotations

from rlvr_core.api import Registrar, hookimpl


@hookimpl
def register_datasets(registrar: Registrar) -> None:
    """Add the maths data sets."""
    registrar.add(
        "gsm8k",
        "rlvr_math.gsm8k:Gsm8k",
        summary="Grade-school word problems, from the hub or an official jsonl.",
    )
    registrar.add(
        "arithmetic",
        "rlvr_math.arithmetic:Arithmetic",
        summary="Generated two-digit additions that a tiny model learns on a CPU.",
    )
    registrar.add(
        "math",
        "rlvr_math.competition:Math",
        summary="MATH: 12,500 competition problems, seven subjects, five levels.",
    )
    registrar.add(
        "math500",
        "rlvr_math.competition:Math500",
        summary="MATH-500: the 500 MATH test problems commonly evaluated on.",
    )
    registrar.add(
        "deepscaler",
        "rlvr_math.competition:DeepScaler",
        summary="DeepScaleR: 40,315 competition problems to train on.",
    )
    registrar.add(
        "aime24",
        "rlvr_math.competition:Aime24",
        summary="AIME 2024: 30 problems.",
    )
    registrar.add(
        "aime25",
        "rlvr_math.recent:Aime25",
        summary="AIME 2025: 30 problems.",
    )
    registrar.add(
        "aime26",
        "rlvr_math.recent:Aime26",
        summary="AIME 2026: 30 problems.",
    )
    registrar.add(
        "hmmt",
        "rlvr_math.recent:Hmmt",
        summary="HMMT February and November: 30 problems a round.",
    )
    registrar.add(
        "dapo17k",
        "rlvr_math.recent:Dapo",
        summary="DAPO-Math-17k: about 17,000 competition problems to train on.",
    )
    registrar.add(
        "aime_validation",
        "rlvr_math.competition:AimeValidation",
        summary="AIME 2022-2024: 90 problems for validation.",
    )
    registrar.add(
        "beyondaime",
        "rlvr_math.competition:BeyondAime",
        summary="BeyondAIME: 100 harder problems.",
    )
    registrar.add(
        "amc23",
        "rlvr_math.competition:Amc23",
        summary="AMC 12 2023: 40 problems.",
    )
    registrar.add(
        "minerva_math",
        "rlvr_math.competition:MinervaMath",
        summary="Minerva: 272 undergraduate course problems.",
    )
    registrar.add(
        "olympiadbench",
        "rlvr_math.competition:OlympiadBench",
        summary="OlympiadBench: open-ended English mathematics problems.",
    )
    registrar.add(
        "mixed",
        "rlvr_math.mixed:Mixed",
        summary="The GSM8K and MATH rows of the mixed RLVR set, with their few-shot prompts.",
    )


@hookimpl
def register_verifiers(registrar: Registrar) -> None:
    """Add the maths verifiers."""
    registrar.add(
        "gsm8k",
        "rlvr_math.verifiers:Gsm8k",
        summary="The final number equals the one after #### of the reference solution.",
    )
    registrar.add(
        "boxed",
        "rlvr_math.verifiers:Boxed",
        summary="The last \\boxed{} equals the reference answer as text or as an exact number.",
    )
    registrar.add(
        "boxed-format",
        "rlvr_math.verifiers:BoxedFormat",
        summary="The response ends in exactly one \\boxed{}, right or wrong.",
    )
    registrar.add(
        "answer-format",
        "rlvr_math.verifiers:AnswerFormat",
        summary="The response ends in exactly one <answer></answer>, right or wrong.",
    )
    registrar.add(
        "answer",
        "rlvr_math.answer:Answer",
        summary="The final answer means the same as the reference: any form, symbolic, options.",
    )
    registrar.add(
        "gsm8k-strict",
        "rlvr_math.answer:Gsm8kStrict",
        summary="The first '#### N' or 'the answer is N' equals the reference number.",
    )
    registrar.add(
        "gsm8k-flexible",
        "rlvr_math.answer:Gsm8kFlexible",
        summary="The last number of the response equals the reference number.",
    )
    registrar.add(
        "minerva",
        "rlvr_math.answer:Minerva",
        summary="Box, else 'the final answer is', else the last formula; exact values.",
    )
    registrar.add(
        "qwen-math",
        "rlvr_math.answer:QwenMath",
        summary="Box, else 'the answer is', else the last number; decimals to 1e-4.",
    )
    registrar.add(
        "math-verify",
        "rlvr_math.answer:MathVerify",
        summary="Any form, the box first; symbolic, decimals to 1e-6.",
    )


@hookimpl
def register_eval_tasks(registrar: Registrar) -> None:
    """Add the maths evaluations."""
    registrar.add(
        "arithmetic-heldout",
        "rlvr_math.evals:ArithmeticHeldout",
        summary="Unseen additions, sampled at temperature 1.",
    )
    registrar.add(
        "arithmetic-heldout-greedy",
        "rlvr_math.evals:ArithmeticHeldoutGreedy",
        summary="Unseen additions, greedy.",
    )
    registrar.add(
        "gsm8k-test",
        "rlvr_math.evals:Gsm8kTest",
        summary="The GSM8K test split, greedy, with the prompt of training.",
    )
    registrar.add(
        "math-test",
        "rlvr_math.evals:MathTest",
        summary="The MATH test split, greedy, by level and subject.",
    )
    registrar.add(
        "math500",
        "rlvr_math.evals:Math500Test",
        summary="MATH-500, greedy, by level and subject.",
    )
    registrar.add(
        "aime24",
        "rlvr_math.evals:Aime24Test",
        summary="AIME 2024, greedy.",
    )
    registrar.add(
        "amc23",
        "rlvr_math.evals:Amc23Test",
        summary="AMC 2023, greedy.",
    )
    registrar.add(
        "minerva",
        "rlvr_math.evals:MinervaTest",
        summary="Minerva course problems, greedy, by subject.",
    )
    registrar.add(
        "olympiadbench",
        "rlvr_math.evals:OlympiadBenchTest",
        summary="OlympiadBench, greedy, by subject.",
    )
