"""Multi-turn conversations: environments, their worker processes, tools."""
