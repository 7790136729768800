"""An engine for tests of everything around an engine."""
