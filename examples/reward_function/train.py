"""The same from Python; in this folder: python train.py."""

import re

import rlvr_core


def correct(text, answer):
    boxed = re.findall(r"\\boxed\{(\d+)\}", text)
    return float(boxed[-1:] == [answer])


run = rlvr_core.train("../quickstart.yaml", rewards=[correct], set={"run.name": "reward-function"})
print(run.outcome, run.path)
print("mean reward, first and last steps:", run.metrics["reward/mean"][::10])
