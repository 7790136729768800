"""Environments that live in servers: a protocol, its server and client, and adapters."""
