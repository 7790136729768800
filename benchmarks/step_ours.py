"""Our side: the real loop of ``rlvr run`` on the shared task, and its two bare parts."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from step_clock import Clock
from step_task import Case, prompts, reward
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlvr_core.api import (
    Completion,
    EngineContext,
    GenerationRequest,
    NoConfig,
    Problem,
    SamplingParams,
    StepFinished,
    Verdict,
)
from rlvr_core.cli.run import Silent
from rlvr_core.config.resolve import resolve_file
from rlvr_core.engines.sampling import completion_seed
from rlvr_core.engines.transformers import TransformersEngine
from rlvr_core.plugins.host import load_host
from rlvr_core.plugins.registry import Entry
from rlvr_core.run.build import build
from rlvr_core.run.session import Session
from rlvr_core.step.batch import Row, micro_batches
from rlvr_core.step.forward import completion_logprobs


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


def parts(case: Case, folder: Path, repeats: int) -> list[dict[str, float]]:
    """Seconds of bare generation, and of bare forward and backward, for one step's work."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    engine = TransformersEngine(TransformersEngine.Config())
    engine.start(EngineContext(str(folder), model, tokenizer, torch.float32, 1024, 0))
    params = SamplingParams(max_tokens=case.tokens)
    prompt_ids = [tuple(tokenizer(text)["input_ids"]) for text in prompts(case.prompts)]
    clock = Clock()
    for repeat in range(repeats):
        clock.begin()
        with clock.phase("generate"):
            futures = [
                engine.submit(
                    GenerationRequest(str(i), ids, params, tuple(_seeds(repeat, i, case.group)))
                )
                for i, ids in enumerate(prompt_ids)
            ]
            engine.drain()
        rows = [
            Row(ids, one.token_ids, (True,) * len(one.token_ids), one.logprobs, 1.0)
            for ids, future in zip(prompt_ids, futures, strict=True)
            for one in future.result()
        ]
        batches = micro_batches(rows, tokens_per_micro_batch=TOKENS_PER_MICRO_BATCH)
        for batch in batches:
            with clock.phase("forward"):
                logp_BT = completion_logprobs(model, batch, temperature=1.0)
            with clock.phase("backward"):
                logp_BT.sum().backward()  # type: ignore[no-untyped-call]
        clock.end()
        model.zero_grad()
    return clock.steps


def _seeds(repeat: int, prompt: int, n: int) -> list[int]:
    return [completion_seed(0, str(prompt), repeat, 0, sample) for sample in range(n)]
