"""Runs untrusted programs within limits and leaves nothing of them behind."""

from rlvr_code.sandbox.backends import ORDER, WEAKNESSES, Choice, survey
from rlvr_code.sandbox.limits import Limits, Reason, Result
from rlvr_code.sandbox.sandbox import Sandbox
from rlvr_code.sandbox.session import Session

__all__ = [
    "ORDER",
    "WEAKNESSES",
    "Choice",
    "Limits",
    "Reason",
    "Result",
    "Sandbox",
    "Session",
    "survey",
]
