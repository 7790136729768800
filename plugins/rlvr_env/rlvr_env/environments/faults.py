"""The errors of calls of environments."""

from __future__ import annotations


class EnvironmentFailedError(Exception):
    """A call of an environment failed; the message says why.

    Attributes:
        in_call: Whether the call itself failed; otherwise it was never made.
    """

    in_call = True


class EnvironmentTimeoutError(EnvironmentFailedError):
    """A call took too long, and its process was killed."""
