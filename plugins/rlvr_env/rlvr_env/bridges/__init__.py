"""Bridges to verifiers, TRL and lm-evaluation-harness; see ``docs/from-others.md``."""
