"""Our side: the real loop of ``rlvr run`` on the shared task."""

from __future__ import annotations

import json
from pathlib import Path

from step_clock import Clock
from step_task import Case, prompts, reward

from rlvr_core.api import Completion, NoConfig, Problem, StepFinished, Verdict
from rlvr_core.cli.run import Silent
from rlvr_core.config.resolve import resolve_file
from rlvr_core.engines.transformers import TransformersEngine
from rlvr_core.plugins.host import load_host
from rlvr_core.plugins.registry import Entry
from rlvr_core.run.build import build
from rlvr_core.run.session import Session


class Digits:
    """The verifier: the shared reward."""

    def __init__(self, config: NoConfig) -> None:
        pass

    def verify(self, problem: Problem, completion: Completion) -> Verdict:
        """Score one completion."""
        return Verdict(reward(completion.text), passed=False)


TOKENS_PER_MICRO_BATCH = 4096

CONFIG = """
run: {{name: bench, dir: {folder}/runs}}
model: {{path: {folder}}}
data:
  sources:
    - use: jsonl
      with: {{path: {folder}/prompts.jsonl, prompt: prompt, verifier: bench/digits}}
sampling: {{n: {case.group}, max_tokens: {case.tokens}}}
engine: transformers
train:
  steps: {steps}
  prompts_per_step: {case.prompts}
  lr: 1.0e-4
  warmup_steps: 0
  tokens_per_micro_batch: {budget}
checkpoint: {{every: 0}}
"""


def run(case: Case, folder: Path, steps: int) -> list[dict[str, float]]:
    """Train so many steps; one record a step, phases in wall seconds."""
    clock = Clock()
    clock.wrap(Session, "one_step", None)
    clock.wrap(TransformersEngine, "drain", "generate")

    class Timed(Silent):
        def step_finished(self, event: StepFinished) -> None:
            metrics = event.metrics
            assert metrics["rows"] == case.completions, metrics
            for phase in ("forward", "backward", "optimizer"):
                clock.add(phase, event.timing[f"train.{phase}"])
            clock.add("rollout", event.timing["rollout"])

    rows = [json.dumps({"prompt": text}) for text in prompts(case.prompts)]
    (folder / "prompts.jsonl").write_text("\n".join(rows))
    (folder / "config.yaml").write_text(
        CONFIG.format(folder=folder, case=case, steps=steps, budget=TOKENS_PER_MICRO_BATCH)
    )
    host = load_host()
    host.registry.add(Entry("verifier", "bench/digits", "step_ours:Digits", "", "bench"))
    resolved = resolve_file(folder / "config.yaml", (), host)
    command = ["benchmarks/step.py"]
    with build(resolved, lambda: str(folder), Timed(), command=command) as session:
        assert session is not None
        session.run(resolved.dump())
    for record in clock.steps:
        record["score"] = record.pop("rollout") - record["generate"]
    return clock.steps
