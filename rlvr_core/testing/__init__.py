"""What plugin authors test with.

``conformance`` turns a verifier and a few cases into tests, ``component_conformance`` a loss, an
engine or another component, ``dataset_conformance`` a task set; ``play`` plays an environment. Each
name is imported from its home when it is first used.
"""

from rlvr_core.api.lazy import face

_HOMES = {
    "builtin.conformance.cases": "Case load_cases",
    "builtin.conformance.checks": "Check Subject VERIFIER_CHECKS",
    "builtin.conformance.components": "COMPONENT_CHECKS component_conformance",
    "builtin.conformance.environments": "play",
    "builtin.conformance.verifiers": "conformance",
    "builtin.datacheck.conformance": "dataset_conformance",
}

__getattr__, __dir__, __all__ = face(__name__, _HOMES)
