"""What every component of the plugin promises; those that need a file have tests of their own."""

from rlvr_devkit.conformance.as_tests import plugin_conformance

test_promises = plugin_conformance("code")
