"""Runs steps of a trainer on the stand-in and prints what they cost, a line of JSON a case.

A process of its own, since the stand-in's library cannot be unloaded; see ``CASE``:

    python tests/gpu_standin/run.py '[{"dtype": "bfloat16", "beta": 0.01}, {"device": "cpu"}]'
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "train")]
import build  # noqa: E402

build.load()

import device as standin  # noqa: E402
import torch  # noqa: E402
from small import ADAMW, CONSTANT, estimator_for  # noqa: E402
from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: E402

from rlvr_core.api import Completion, Group, Judged, Problem  # noqa: E402
from rlvr_core.builtin.losses.policy_family import GRPO  # noqa: E402
from rlvr_core.builtin.packing import attention_mask  # noqa: E402
from rlvr_core.config.model import ReferenceSection, TrainSection  # noqa: E402
from rlvr_core.engines.forward_paths import choose_forward_paths  # noqa: E402
from rlvr_core.step.model import Precision, enable_checkpointing  # noqa: E402
from rlvr_core.step.objective import LossTerm, Objective  # noqa: E402
from rlvr_core.step.optim import Optimizer  # noqa: E402
from rlvr_core.step.reference import SeparateModel  # noqa: E402
from rlvr_core.step.step import PolicyTrainer, _bare_rows  # noqa: E402

FLASH_WORKS = attention_mask.flash_works
CASE: Mapping[str, Any] = {
    "device": "standin",  # or cpu
    "size": "tiny",
    "dtype": "bfloat16",
    "beta": 0.0,
    "flash": True,
    "checkpointing": False,
    "forward_paths": True,
    "mini_batches": 1,
    "groups": 4,
    "n": 4,
    "prompt": 10,
    "tokens": 12,
    "budget": 200,
    "steps": 2,
}
"""What a case is made of, unless it says otherwise; figures are of its last step."""
SIZES: Mapping[str, Mapping[str, Any]] = {
    "tiny": {
        "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    },
    "1.7B": {
        "vocab_size": 151_936, "hidden_size": 2048, "intermediate_size": 6144,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 128, "tie_word_embeddings": True,
    },
}  # fmt: skip


def models(case: Mapping[str, Any]) -> list[Qwen3ForCausalLM]:
    """The policy and, with a KL term, its reference; the same weights in both."""
    config = Qwen3Config(**SIZES[case["size"]], attn_implementation="sdpa", eos_token_id=None)
    found = []
    for _ in range(1 + bool(case["beta"])):
        torch.manual_seed(0)
        with torch.device("cpu" if case["size"] == "tiny" else "meta"):
            found.append(Qwen3ForCausalLM(config).eval())
    return found


def groups(case: Mapping[str, Any], vocabulary: int) -> list[Group]:
    """Random completions of skewed lengths, half of them right."""
    draw = random.Random(3)

    def ids(n: int) -> tuple[int, ...]:
        return tuple(draw.randrange(vocabulary) for _ in range(n))

    found = []
    for place in range(case["groups"]):
        prompt, members = ids(draw.randint(case["prompt"] // 2, case["prompt"])), []
        for number in range(case["n"]):
            n = max(1, min(case["tokens"], int(case["tokens"] * draw.lognormvariate(-0.8, 0.6))))
            logps = tuple(-2 * draw.random() for _ in range(n))
            done = Completion(prompt, ids(n), logps, (True,) * n, "", "stop")
            members.append(Judged(done, {}, float(number % 2), number % 2 == 1))
        found.append(Group(Problem(f"p{place}", "?", "v", {}, "toy"), tuple(members), 0))
    return found


def trainer_of(case: Mapping[str, Any], made: list[Qwen3ForCausalLM]) -> PolicyTrainer:
    """A trainer of models that are where they belong."""
    policy, *others = made
    dtype = getattr(torch, case["dtype"])
    train = TrainSection(
        steps=9,
        lr=1e-3,
        warmup_steps=0,
        tokens_per_micro_batch=case["budget"],
        mini_batches=case["mini_batches"],
    )
    if case["checkpointing"]:
        enable_checkpointing(policy)
    attention_mask.flash_works = FLASH_WORKS if case["flash"] else lambda *_: False
    for model in made:
        if not case["forward_paths"]:
            choose_forward_paths(model, [])
    reference = None
    if others:
        reference = SeparateModel(others[0], policy, ReferenceSection())
    loss = LossTerm("l", GRPO(GRPO.Config(beta=case["beta"])))
    return PolicyTrainer(
        model=policy,
        reference=reference,
        objective=Objective((loss,), estimator_for([loss])),
        optimizer=Optimizer(policy, train, dtype, ADAMW, CONSTANT),
        precision=Precision(dtype),
        train=train,
        temperature=1.0,
        max_completion_tokens=case["tokens"],
        reward_weights=lambda _: (1.0,),
    )


def run(case: Mapping[str, Any]) -> dict[str, Any]:
    """Do the steps of a case.

    Returns:
        ``metrics`` of each step; and on the stand-in ``waits``, ``copies``, ``launches``,
        ``flops``, ``wide`` and ``micro_batches`` of the last one, and bytes at rest and at most.
    """
    made = models(case)
    for other in made[1:]:
        other.to(getattr(torch, case["dtype"])).requires_grad_(False)
    given = groups(case, made[0].config.vocab_size)
    if case["device"] == "cpu":
        trainer = trainer_of(case, made)
        return {"metrics": [trainer.update(given, s, s).metrics for s in range(case["steps"])]}
    standin.pretend()
    with standin.StandIn(shapes_only=case["size"] != "tiny") as device:
        for model in made:
            device.put_model(model)
        trainer = trainer_of(case, made)
        metrics = []
        for step in range(case["steps"]):
            device.forget()
            metrics.append(trainer.update(given, step, step).metrics)
        figures = {
            "metrics": metrics,
            "waits": [[*key, n] for key, n in device.waits.most_common()],
            "copies": device.copies.most_common(),
            "launches": sum(device.launches.values()),
            "flops": {str(dtype): n for dtype, n in device.flops.items()},
            "wide": device.wide.most_common(),
            "at_rest": device.live,
            "peak": device.peak,
        }
        rows = trainer._pack(_bare_rows(given))
        return figures | {"micro_batches": len(rows)}


if __name__ == "__main__":
    for given in json.loads(sys.argv[1]) if sys.argv[1:] else [{}]:
        print(json.dumps(run({**CASE, **given})), flush=True)
