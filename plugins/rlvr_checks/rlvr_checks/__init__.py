"""Verifiers of no one domain: choice, JSON, tool calls, SQL, judges by a model."""
