"""Data that plugins generate, under the checks of ``rlvr data check``."""

from rlvr_doctor.datacheck.conformance import dataset_conformance

test_arithmetic_passes = dataset_conformance("math/arithmetic", config={"n": 120}, per_tag=40)
test_no_strategy_that_ignores_the_question_is_worth_much = dataset_conformance("checks/commands")
