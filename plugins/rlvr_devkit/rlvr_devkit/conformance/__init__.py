"""Conformance checks of components for tests of plugins; re-exported by `rlvr_core.testing`."""
