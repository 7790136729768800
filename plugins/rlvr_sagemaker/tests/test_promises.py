"""What every component of the plugin promises; the launcher is tried on a service of its own."""

from rlvr_core.testing import plugin_conformance

test_promises = plugin_conformance("sagemaker")
