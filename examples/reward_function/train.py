"""The same from Python: python examples/reward_function/train.py."""

import re
from pathlib import Path

import rlvr_core


def correct(text, answer):
    boxed = re.findall(r"\\boxed\{(\d+)\}", text)
    return float(boxed[-1:] == [answer])


quickstart = Path(__file__).parents[1] / "quickstart.yaml"
run = rlvr_core.train(quickstart, rewards=[correct], set={"run.name": "reward-function"})
print(run.outcome, run.path)
print("mean reward, first and last steps:", run.metrics["reward/mean"][::10])
