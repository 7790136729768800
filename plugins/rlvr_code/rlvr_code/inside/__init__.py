"""Code that runs inside the sandbox: standard library only, sent there as text."""
