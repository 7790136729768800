"""Cases of part C as ``rlvr plan`` has them."""

from __future__ import annotations

import tempfile
from dataclasses import replace

from plugins.rlvr_doctor.tests.planner.places import config_of
from plugins.rlvr_doctor.tests.planner.places import planned as planned_of
from rlvr_doctor.planner.setup import Setup
from tests.together.gpu_kit import fast
from tests.together.gpu_standin.steps import groups

VOCABULARY = 151_936


def planned(name: str, *, compiled: bool) -> Setup:
    """A case, with the lengths that its rows have in the mean."""
    case = fast.case_of(name)
    given = groups(case, VOCABULARY)
    tokens = sum(len(one.completion.token_ids) for group in given for one in group.members)
    prompts = sum(len(group.members[0].completion.prompt_ids) for group in given)
    changes = ["train.compile=true"] if compiled else []
    with tempfile.TemporaryDirectory() as folder:
        mean = tokens / (case["groups"] * case["n"])
        plan = planned_of(config_of(case, folder), *changes, mean_tokens=mean)
    return replace(plan.setup, mean_prompt=prompts / case["groups"])
