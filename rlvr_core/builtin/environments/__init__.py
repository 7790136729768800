"""Conversations of several turns: environments, their worker processes, tools."""
