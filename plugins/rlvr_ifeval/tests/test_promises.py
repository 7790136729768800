"""What every component of the plugin promises; those that need a file have tests of their own."""

from pathlib import Path

from rlvr_core.api import Example
from rlvr_devkit.conformance.as_tests import plugin_conformance

CASES = Path(__file__).with_name("verifier_cases.jsonl")

test_promises = plugin_conformance("ifeval", {"ifeval/ifeval": Example(cases=CASES)})
