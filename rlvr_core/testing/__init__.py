"""What plugin authors test with.

``CHECKS`` lists what components of each kind promise. ``component_conformance`` makes tests of it
for one component, ``plugin_conformance`` for all that a plugin registers; ``conformance`` takes a
verifier and a few cases, ``dataset_conformance`` a task set; ``play`` plays an environment. Each
name is imported from its home when it is first used. ``rlvr_core.testing.fixtures`` has fixtures.
"""

from rlvr_core.api.lazy import face

_HOMES = {
    "builtin.conformance.as_tests": "component_conformance conformance plugin_conformance",
    "builtin.conformance.cases": "Case load_cases",
    "builtin.conformance.checks": "CHECKS",
    "builtin.conformance.environments": "play",
    "builtin.conformance.subject": "Check Result Subject Unchecked results",
    "builtin.datacheck.conformance": "dataset_conformance",
}

__getattr__, __dir__, __all__ = face(__name__, _HOMES)
