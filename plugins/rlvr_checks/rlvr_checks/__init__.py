"""Verifiers of no single domain: choice, JSON, SQL, judges by a model."""
