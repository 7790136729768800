"""What every component of the plugin promises."""

from rlvr_core.api import Example
from rlvr_devkit.conformance.as_tests import plugin_conformance

TASKS = Example(config={"tasks": ["base_conversion"]})

test_promises = plugin_conformance("gym", {"gym/tasks": TASKS, "gym/heldout": TASKS})
