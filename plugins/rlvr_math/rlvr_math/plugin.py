"""Registers what rlvr-math offers."""

from __future__ import annotations

from rlvr_core.api import Registrar, hookimpl


@hookimpl
def register_datasets(registrar: Registrar) -> None:
    """Add the maths data sets."""
    add = registrar.add
    add("gsm8k", "rlvr_math.gsm8k:Gsm8k", summary="Grade-school word problems.")
    add("arithmetic", "rlvr_math.arithmetic:Arithmetic", summary="Additions for tiny models.")
    add("math", "rlvr_math.competition:Math", summary="MATH: 12,500 competition problems.")
    add("math500", "rlvr_math.competition:Math500", summary="MATH-500: 500 of MATH, to evaluate.")
    add("deepscaler", "rlvr_math.competition:DeepScaler", summary="DeepScaleR: 40,315 to train on.")
    add("aime24", "rlvr_math.competition:Aime24", summary="AIME 2024: 30 problems.")
    add("aime25", "rlvr_math.recent:Aime25", summary="AIME 2025: 30 problems.")
    add("aime26", "rlvr_math.recent:Aime26", summary="AIME 2026: 30 problems.")
    add("hmmt", "rlvr_math.recent:Hmmt", summary="HMMT February and November: 30 problems a round.")
    add("dapo17k", "rlvr_math.recent:Dapo", summary="DAPO-Math-17k: 17,000 to train on.")
    add("aime_validation", "rlvr_math.competition:AimeValidation", summary="AIME 2022-2024: 90.")
    add("beyondaime", "rlvr_math.competition:BeyondAime", summary="BeyondAIME: 100 hard problems.")
    add("amc23", "rlvr_math.competition:Amc23", summary="AMC 12 2023: 40 problems.")
    add("minerva_math", "rlvr_math.competition:MinervaMath", summary="Minerva: 272 problems.")
    add("olympiadbench", "rlvr_math.competition:OlympiadBench", summary="OlympiadBench in English.")
    add("mixed", "rlvr_math.mixed:Mixed", summary="The mixed RLVR set: GSM8K and MATH, few-shot.")


@hookimpl
def register_verifiers(registrar: Registrar) -> None:
    """Add the maths verifiers."""
    add = registrar.add
    add("gsm8k", "rlvr_math.final_number:Gsm8k", summary="The final number is the one behind ####.")
    add("boxed", "rlvr_math.verifiers:Boxed", summary="The last box is the answer: text or number.")
    add("boxed-format", "rlvr_math.verifiers:BoxedFormat", summary="The response ends in one box.")
    add("answer-format", "rlvr_math.verifiers:AnswerFormat", summary="It ends in one answer tag.")
    add("answer", "rlvr_math.answer:Answer", summary="The answer means the same as the reference.")
    add("gsm8k-strict", "rlvr_math.answer:Gsm8kStrict", summary="The first stated number is right.")
    add("gsm8k-flexible", "rlvr_math.answer:Gsm8kFlexible", summary="The last number is right.")
    add("minerva", "rlvr_math.answer:Minerva", summary="Box, statement or last formula; exact.")
    add("qwen-math", "rlvr_math.answer:QwenMath", summary="Box, statement or last number; to 1e-4.")
    add("math-verify", "rlvr_math.answer:MathVerify", summary="Any form, the box first; to 1e-6.")


@hookimpl
def register_eval_tasks(registrar: Registrar) -> None:
    """Add the maths evaluations."""
    add = registrar.add
    add("arithmetic-heldout", "rlvr_math.evals:ArithmeticHeldout", summary="Unseen additions.")
    add("arithmetic-heldout-greedy", "rlvr_math.evals:ArithmeticHeldoutGreedy", summary="Greedy.")
    add("gsm8k-test", "rlvr_math.evals:Gsm8kTest", summary="The test split of GSM8K, greedy.")
    add("math-test", "rlvr_math.evals:MathTest", summary="The test split of MATH, greedy.")
    add("math500", "rlvr_math.evals:Math500Test", summary="MATH-500, greedy, by level and subject.")
    add("aime24", "rlvr_math.evals:Aime24Test", summary="AIME 2024, greedy.")
    add("amc23", "rlvr_math.evals:Amc23Test", summary="AMC 2023, greedy.")
    add("minerva", "rlvr_math.evals:MinervaTest", summary="Minerva course problems, greedy.")
    add("olympiadbench", "rlvr_math.evals:OlympiadBenchTest", summary="OlympiadBench, greedy.")
