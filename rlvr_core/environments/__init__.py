"""Environments that know no domain."""
