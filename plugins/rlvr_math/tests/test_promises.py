"""What every component of the plugin promises; those that need a file have tests of their own."""

from rlvr_core.api import Example
from rlvr_devkit.conformance.as_tests import plugin_conformance

BOXED = [
    {"spec": {"answer": "7"}, "response": "It is \\boxed{7}", "passed": True},
    {"spec": {"answer": "7"}, "response": "It is \\boxed{8}", "passed": False},
]
GSM8K = [
    {"spec": {"answer": "3 + 4 = 7 #### 7"}, "response": "So 7", "passed": True},
    {"spec": {"answer": "3 + 4 = 7 #### 7"}, "response": "7, or 8", "passed": False},
]

test_promises = plugin_conformance(
    "math",
    {"math/boxed": Example(cases=BOXED), "math/gsm8k": Example(cases=GSM8K)},
)
