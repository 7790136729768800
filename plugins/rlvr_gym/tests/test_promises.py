"""What every component of the plugin promises."""

from rlvr_core.builtin.conformance.example import Example
from rlvr_core.testing import plugin_conformance

TASKS = Example(config={"tasks": ["base_conversion"]})

test_promises = plugin_conformance("gym", {"gym/tasks": TASKS, "gym/heldout": TASKS})
