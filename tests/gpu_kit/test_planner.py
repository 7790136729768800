"""``rlvr plan`` against an H200: figures that ``make gpu`` wrote there, in ``h200/``."""

import json
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "gpu_standin")]
import fast  # noqa: E402
from predict import setup_of  # noqa: E402
from steps import groups  # noqa: E402

from rlvr_core.builtin.planner.memory import memory_of  # noqa: E402
from rlvr_core.builtin.planner.setup import Micro  # noqa: E402
from rlvr_core.builtin.planner.speed import speed_of  # noqa: E402

FIGURES = {
    one["check"]: one["figure"]
    for name in ("first", "second")
    for line in (HERE / "h200" / f"{name}.jsonl").read_text().splitlines()
    if (one := json.loads(line)).get("figure") is not None
}
"""By check; those of the second time, with the step as it now is, replace those of the first."""


def planned(name, *, compiled=False):
    """A case of the kit, as the planner has it."""
    case = fast.case_of(name)
    given = groups(case, 151_936)
    trained = sum(len(one.completion.token_ids) for group in given for one in group.members)
    prompts = sum(len(group.members[0].completion.prompt_ids) for group in given)
    sizes = {"loss_tokens": trained, "tokens": trained + prompts}
    return setup_of(case, [sizes], compiled=compiled)


@pytest.mark.parametrize(
    ("name", "compiled"),
    [
        ("1.7B, 512 tokens", False),
        ("1.7B, 4096 tokens", False),
        ("1.7B, 512 tokens", True),
        ("1.7B, 512 tokens, every second layer", True),
        ("1.7B, 512 tokens, nothing recomputed", True),
    ],
)
def test_seconds_of_a_step_are_within_a_tenth(name, compiled):
    """The shares of the ceilings are from these cases: it holds the formulas, not the shares."""
    speed = speed_of(planned(name, compiled=compiled), 1e11)
    seconds = speed.gradient + speed.scoring + speed.optimizer
    measured = FIGURES[f"{name}{', compiled' if compiled else ''}: step"]
    assert seconds == pytest.approx(measured, rel=0.1)


def test_compiled_layers_with_an_adapter_are_within_a_quarter():
    """Nothing was fitted to this one."""
    name = "1.7B, 512 tokens, LoRA of rank 16"
    speed = speed_of(planned(name, compiled=True), 1e11)
    assert speed.gradient == pytest.approx(FIGURES[f"{name}, compiled: step"], rel=0.25)


@pytest.mark.parametrize("name", list(fast.CASES))
def test_memory_between_steps_is_within_a_hundredth(name):
    one = memory_of(planned(name), [(Micro(1, 1, 1, 1, 1, 1), False)], reserved=0)
    of_adapter = 0.03 if "LoRA" in name else 0.01
    assert one.held.total / 2**30 == pytest.approx(
        FIGURES[f"{name}: between steps"], rel=of_adapter
    )
