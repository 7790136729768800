"""Verifiers of no one domain: choice, JSON, SQL, judges by a model."""
