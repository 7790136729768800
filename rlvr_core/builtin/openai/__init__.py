"""Models behind OpenAI's HTTP interface: an engine and a judge."""
