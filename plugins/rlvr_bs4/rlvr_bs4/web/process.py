"""The verifier ``bs4/process``: how far programs came, whether or not the answer is right.

It is an entry of ``rewards`` of its own, so that its weight can be moved to 0 over the run.
"""

from __future__ import annotations

from rlvr_core.api import Completion, NoConfig, Problem, Verdict, VerifierTraits


class Process:
    """Share of parsing, searching and reading the page that a program really did; 1 if right."""

    traits = VerifierTraits(reward_range=(0.0, 1.0))
    Config = NoConfig

    def __init__(self, config: NoConfig) -> None:
        del config

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Take it from the environment's verdict."""
        script = completion.transcript
        verdict = None if script is None else script.verdict
        if verdict is None or "process" not in verdict.parts:
            return Verdict(None, "unscorable", detail="bs4/process judges conversations of bs4/web")
        share = verdict.parts["process"]
        return Verdict(share, passed=verdict.passed, detail=f"process {share:g}")
