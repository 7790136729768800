"""Models behind OpenAI's HTTP API: an engine and a judge."""
