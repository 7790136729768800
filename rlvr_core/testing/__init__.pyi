"""What plugin authors test with.

``CHECKS`` lists what components of each kind promise. ``component_conformance`` makes tests of it
for one component, ``plugin_conformance`` for all that a plugin registers; ``conformance`` takes a
verifier and a few cases, ``dataset_conformance`` a task set; ``play`` plays an environment. Each
name is imported from its home when it is first used. ``rlvr_core.testing.fixtures`` has fixtures."""

from rlvr_core.builtin.conformance.as_tests import component_conformance as component_conformance
from rlvr_core.builtin.conformance.as_tests import conformance as conformance
from rlvr_core.builtin.conformance.as_tests import plugin_conformance as plugin_conformance
from rlvr_core.builtin.conformance.cases import Case as Case
from rlvr_core.builtin.conformance.cases import load_cases as load_cases
from rlvr_core.builtin.conformance.checks import CHECKS as CHECKS
from rlvr_core.builtin.conformance.environments import play as play
from rlvr_core.builtin.conformance.subject import Check as Check
from rlvr_core.builtin.conformance.subject import Result as Result
from rlvr_core.builtin.conformance.subject import Subject as Subject
from rlvr_core.builtin.conformance.subject import Unchecked as Unchecked
from rlvr_core.builtin.conformance.subject import results as results
from rlvr_core.builtin.datacheck.conformance import dataset_conformance as dataset_conformance
