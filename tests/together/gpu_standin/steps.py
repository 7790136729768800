"""Cases of a training step: what the stand-in for a GPU, and a real one, are given to compute."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from rlvr_algos.distillation.losses import Distillation, DistillConfig
from rlvr_algos.distillation.teacher import Teacher
from rlvr_algos.muon import Muon
from rlvr_core.api import Completion, Group, Judged, Problem, TeacherTraits
from rlvr_core.config.model import LoraSection, ReferenceSection, TrainSection
from rlvr_core.lora import lora
from rlvr_core.losses import GRPO
from rlvr_core.packing import attention_mask
from rlvr_core.step.forward_paths import choose_forward_paths
from rlvr_core.step.model import Precision, enable_checkpointing
from rlvr_core.step.objective import LossTerm, Objective
from rlvr_core.step.optim import Optimizer
from rlvr_core.step.reference import SeparateModel, UnderAdapter
from rlvr_core.step.step import PolicyTrainer
from tests.support.sizes import SIZES
from tests.support.train.small import ADAMW, CONSTANT, estimator_for

FLASH_WORKS = attention_mask.flash_works
CASE: Mapping[str, Any] = {
    "device": "standin",  # or cpu
    "size": "tiny",
    "shape": None,  # or sizes of a model in the place of these
    "dtype": "bfloat16",
    "beta": 0.0,
    "flash": True,
    "checkpointing": False,
    "forward_paths": True,
    "mini_batches": 1,
    "lora": False,  # or a rank
    "distillation": False,
    "per_token": False,
    "muon": False,
    "offload": False,
    "layers": None,  # as many as the size has
    "vocab": None,  # the same of the vocabulary
    "groups": 4,
    "n": 4,
    "prompt": 10,
    "tokens": 12,
    "skewed": True,  # or every prompt and completion as long as may be
    "budget": 200,
    "steps": 2,
    "split": 1,  # ranks that split rows
}
"""What a case is made of, unless it says otherwise; figures are of its last step."""


def shape_of(case: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes of a case's model."""
    shape = dict(case["shape"] or SIZES[case["size"]])
    if case["layers"] is not None:
        shape["num_hidden_layers"] = case["layers"]
    if case["vocab"] is not None:
        shape["vocab_size"] = case["vocab"]
    return shape


def model_of(case: Mapping[str, Any], seed: int, device: str) -> PreTrainedModel:
    """A model on a device, which may be that of shapes without data."""
    given = {"model_type": "qwen3", "eos_token_id": None} | shape_of(case)
    config = AutoConfig.for_model(**given)
    torch.manual_seed(seed)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()


def models(case: Mapping[str, Any], device: str) -> dict[str, PreTrainedModel]:
    """The policy, and the reference (the same weights) and the teacher (others) if it has them."""
    found = {"policy": model_of(case, 0, device)}
    if case["beta"] and not case["lora"]:
        found["reference"] = model_of(case, 0, device)
    if case["distillation"]:
        found["teacher"] = model_of(case, 1, device)
    dtype = getattr(torch, case["dtype"])
    for name, other in found.items():
        if name != "policy":
            other.to(dtype).requires_grad_(False)
    if case["lora"]:
        section = LoraSection(rank=int(case["lora"]), alpha=8, dropout=0.0)
        lora.attach(found["policy"], section, seed=0, compute=dtype, path="toy", revision=None)
    return found


def groups(case: Mapping[str, Any], vocabulary: int) -> list[Group]:
    """Random completions of skewed lengths, half of them right."""
    draw = random.Random(3)

    def ids(n: int) -> tuple[int, ...]:
        return tuple(draw.randrange(vocabulary) for _ in range(n))

    found = []
    for place in range(case["groups"]):
        least = case["prompt"] // 2 if case["skewed"] else case["prompt"]
        prompt, members = ids(draw.randint(least, case["prompt"])), []
        for number in range(case["n"]):
            n = max(1, min(case["tokens"], int(case["tokens"] * draw.lognormvariate(-0.8, 0.6))))
            n = n if case["skewed"] else case["tokens"]
            logps = tuple(-2 * draw.random() for _ in range(n))
            done = Completion(prompt, ids(n), logps, (True,) * n, "", "stop")
            members.append(Judged(done, {}, float(number % 2), number % 2 == 1))
        found.append(Group(Problem(f"p{place}", "?", "v", {}, "toy"), tuple(members), 0))
    return found


def trainer_of(
    case: Mapping[str, Any], made: dict[str, PreTrainedModel], **ranks: Any
) -> PolicyTrainer:
    """A trainer of models that are where they belong; ``ranks`` and ``parallel`` of several."""
    policy = made["policy"]
    dtype = getattr(torch, case["dtype"])
    train = TrainSection(
        steps=9,
        lr=1e-3,
        warmup_steps=0,
        tokens_per_micro_batch=case["budget"],
        mini_batches=case["mini_batches"],
        context_parallel=case["split"],
    )
    if case["checkpointing"]:
        enable_checkpointing(
            policy, "all" if case["checkpointing"] is True else case["checkpointing"]
        )
    attention_mask.flash_works = FLASH_WORKS if case["flash"] else lambda *_: False
    for model in made.values():
        if not case["forward_paths"]:
            choose_forward_paths(model, [])
    reference = None
    if case["beta"]:
        section = ReferenceSection()
        separate = made.get("reference")
        reference = SeparateModel(separate, policy, section) if separate else None
        reference = reference or UnderAdapter(policy, section)
    terms = [LossTerm("l", GRPO(GRPO.Config(beta=0.0 if case["per_token"] else case["beta"])))]
    if case["distillation"]:
        loss = Distillation(DistillConfig(top_k=5), TeacherTraits(5, model="a model of its own"))
        terms.append(LossTerm("d", loss, teacher=Teacher(5, made["teacher"])))
    named = {"name": "reinforce_plus_plus", "beta": case["beta"]} if case["per_token"] else {}
    builder = Muon(Muon.Config()) if case["muon"] else ADAMW
    return PolicyTrainer(
        model=policy,
        reference=reference,
        objective=Objective(tuple(terms), estimator_for(terms, **named)),
        optimizer=Optimizer(policy, train, dtype, builder, CONSTANT),
        precision=Precision(dtype),
        train=train,
        temperature=1.0,
        max_completion_tokens=case["tokens"],
        reward_weights=lambda _: (1.0,),
        **ranks,
    )
