"""What plugin authors test with.

``conformance`` turns a verifier and a few cases into tests, ``component_conformance`` a loss, an
engine or another component, ``dataset_conformance`` a task set; ``play`` plays an environment. Each
name is imported from its home when it is first used."""

from rlvr_core.builtin.conformance.cases import Case as Case
from rlvr_core.builtin.conformance.cases import load_cases as load_cases
from rlvr_core.builtin.conformance.checks import Check as Check
from rlvr_core.builtin.conformance.checks import Subject as Subject
from rlvr_core.builtin.conformance.checks import VERIFIER_CHECKS as VERIFIER_CHECKS
from rlvr_core.builtin.conformance.components import COMPONENT_CHECKS as COMPONENT_CHECKS
from rlvr_core.builtin.conformance.components import component_conformance as component_conformance
from rlvr_core.builtin.conformance.environments import play as play
from rlvr_core.builtin.conformance.verifiers import conformance as conformance
from rlvr_core.builtin.datacheck.conformance import dataset_conformance as dataset_conformance
