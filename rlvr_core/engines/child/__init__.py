"""An engine in a process of its own, which generates while training continues."""
