"""The verifier ``core/environment``: a conversation is worth what its environment says."""

from __future__ import annotations

from rlvr_core.api import Completion, NoConfig, Problem, Verdict


class EnvironmentVerdict:
    """Passes on the verdict that the environment gave at the end of a conversation.

    One that was cut off at a limit is worth what the environment says of that, or nothing.
    """

    Config = NoConfig

    def __init__(self, config: NoConfig) -> None:
        del config

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """The environment's verdict; unscorable where there is none."""
        if completion.transcript is None:
            return Verdict(None, "unscorable", detail="no environment played this problem")
        if completion.transcript.verdict is None:
            name = completion.transcript.environment
            return Verdict(None, "unscorable", detail=f"{name} leaves the verdict to a verifier")
        return completion.transcript.verdict
