"""What every component of the plugin promises; the launcher is tried on a service of its own."""

from rlvr_devkit.conformance.as_tests import plugin_conformance

test_promises = plugin_conformance("sagemaker")
