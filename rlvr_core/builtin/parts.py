"""Parts of the kernel in rooms of their own, as ``module:attribute``; see ``host.parts``.

They are no components: nothing in a config names them.
"""

from __future__ import annotations

FUNCTIONS = {
    "verifier": "rlvr_core.builtin.verifiers.function:verifier_of",
    "dataset": "rlvr_core.builtin.datasets.function:dataset_of",
    "advantage": "rlvr_core.builtin.functions.learning:advantage_of",
    "loss": "rlvr_core.builtin.functions.learning:loss_of",
    "schedule": "rlvr_core.builtin.functions.learning:schedule_of",
}
"""By kind, what makes a component class of a plain function."""
