from rlvr_devkit.conformance.as_tests import conformance
from rlvr_hello import Greeting

test_greeting = conformance(Greeting, cases="cases.jsonl")
