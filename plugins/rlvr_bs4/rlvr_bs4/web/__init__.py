"""Conversations about a site: a model moves on its pages and runs programs on what it sees."""
