"""The verifier ``env/environment``: uses the verdict of a conversation's environment."""

from __future__ import annotations

from rlvr_core.api import Completion, NoConfig, Problem, Verdict


class EnvironmentVerdict:
    """Returns the verdict that the environment gave at the end of a conversation.

    For a conversation cut off at a limit, it is the environment's verdict on that, if it gives one.
    """

    Config = NoConfig

    def __init__(self, config: NoConfig) -> None:
        del config

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Return the environment's verdict; unscorable if there is none."""
        if completion.transcript is None:
            return Verdict(None, "unscorable", detail="no environment played this problem")
        if completion.transcript.verdict is None:
            name = completion.transcript.environment
            return Verdict(None, "unscorable", detail=f"{name} leaves the verdict to a verifier")
        return completion.transcript.verdict
