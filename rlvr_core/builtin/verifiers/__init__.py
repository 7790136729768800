"""Verifiers that know no domain."""
