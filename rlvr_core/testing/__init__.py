"""What plugin authors test with.

``conformance`` turns a verifier and a few cases into tests, ``play`` plays an environment.
"""

from rlvr_core.testing.cases import Case, load_cases
from rlvr_core.testing.conformance import conformance
from rlvr_core.testing.environments import play
from rlvr_core.testing.verifier_checks import VERIFIER_CHECKS, Check, Subject

__all__ = ["VERIFIER_CHECKS", "Case", "Check", "Subject", "conformance", "load_cases", "play"]
