"""Conversations of several turns for rlvr: tools, environment servers, MCP, agents, bridges."""
