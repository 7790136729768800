"""The nouns of the framework: problems, completions, verdicts, groups.

All are frozen. Lengths are explicit everywhere: nothing is ever inferred from a token id (T3, T6).

Import from here: in which file a noun stands is no contract.
"""

from rlvr_core.api.types.completion import Completion, FinishReason
from rlvr_core.api.types.conversation import Done, Ended, Observation, Reply, Transcript, Turn
from rlvr_core.api.types.estimate import Estimate
from rlvr_core.api.types.group import EvalReport, Group, Judged
from rlvr_core.api.types.problem import Json, Message, Problem
from rlvr_core.api.types.request import REMOTE, GenerationRequest, Prompt, SamplingParams
from rlvr_core.api.types.rollouts import Ages, Rollouts, Sampled
from rlvr_core.api.types.sampling import Draw, Drop, Extend, Fate, Keep, Outcome
from rlvr_core.api.types.verdict import Span, SpanUnit, Usage, Verdict, VerdictStatus

__all__ = [
    "REMOTE",
    "Ages",
    "Completion",
    "Done",
    "Draw",
    "Drop",
    "Ended",
    "Estimate",
    "EvalReport",
    "Extend",
    "Fate",
    "FinishReason",
    "GenerationRequest",
    "Group",
    "Json",
    "Judged",
    "Keep",
    "Message",
    "Observation",
    "Outcome",
    "Problem",
    "Prompt",
    "Reply",
    "Rollouts",
    "Sampled",
    "SamplingParams",
    "Span",
    "SpanUnit",
    "Transcript",
    "Turn",
    "Usage",
    "Verdict",
    "VerdictStatus",
]
