"""Structured output: verifiers of JSON, tool calls and SQL."""
