"""Optimizer steps of adapters in one of several processes, under DDP or FSDP2."""

import torch

from rlvr_core.api import Completion, Group, Judged, NoConfig, Problem
from rlvr_core.config.model import LoraSection, ModelSection, ReferenceSection, TrainSection
from rlvr_core.lora import lora
from rlvr_core.lora.adapter import merged_tensors
from rlvr_core.losses import GRPO
from rlvr_core.parallel.fsdp.gathered_source import GatheredSource
from rlvr_core.parallel.model import ParallelModel
from rlvr_core.step import checkpoint
from rlvr_core.step.forward import probe_forward_path
from rlvr_core.step.model import Precision, load_policy
from rlvr_core.step.objective import LossTerm, Objective
from rlvr_core.step.optim import AdamW, Constant, Optimizer
from rlvr_core.step.reference import UnderAdapter
from rlvr_core.step.step import PolicyTrainer
from tests.support.train.parallel_worker import split_of
from tests.support.train.small import estimator_for

ADAMW, CONSTANT = AdamW(AdamW.Config()), Constant(NoConfig())


def groups(step):
    """Five groups of three completions, rewards 0, 0.5 and 1."""
    generator = torch.Generator().manual_seed(step)
    made = []
    for index in range(5):
        prompt = tuple(torch.randint(3, 60, (4 + index,), generator=generator).tolist())
        members = []
        for place in range(3):
            length = 2 + 3 * place + index
            ids = tuple(torch.randint(3, 60, (length,), generator=generator).tolist())
            answer = Completion(prompt, ids, (-4.0,) * length, (True,) * length, "", "stop", 0)
            members.append(Judged(answer, {}, place / 2, None))
        problem = Problem(f"p{index}", "x", "v", {}, "d")
        made.append(Group(problem, tuple(members), 0))
    return made


def steps(folder, ranks, strategy, dtype, reference, **train):
    section = TrainSection(
        steps=9, lr=1e-2, warmup_steps=0, tokens_per_micro_batch=40, reference=reference, **train
    )
    model = load_policy(folder, ModelSection(path=folder), torch.device("cpu"))
    lora.attach(
        model, LoraSection(rank=4, alpha=8), seed=1, compute=dtype, path=folder, revision=None
    )
    held_to = UnderAdapter(model, ReferenceSection(**reference))
    precision = Precision(dtype)
    parallel = None
    if ranks.world > 1:
        parallel = ParallelModel(ranks, strategy, split=split_of(section))
    source = GatheredSource(model, parallel, torch.device("cpu"))  # alone it gathers nothing
    if parallel is not None:
        probe_forward_path(model)
        parallel.add(model, trained=True, autocast_dtype=precision.autocast)
    terms = (LossTerm("grpo", GRPO(GRPO.Config(beta=0.3))),)
    trainer = PolicyTrainer(
        model=model,
        reference=held_to,
        objective=Objective(terms, estimator_for(terms)),
        optimizer=Optimizer(model, section, dtype, ADAMW, CONSTANT),
        precision=precision,
        train=section,
        temperature=1.0,
        max_completion_tokens=20,
        reward_weights=lambda step: [1.0],
        ranks=ranks,
        parallel=parallel,
    )
    metrics = []
    for step in range(4):
        metrics.append(trainer.update(groups(step), step, 0).metrics)
        held_to.follow(step + 1)
    found = checkpoint.collect(model, trainer.optimizer, held_to)
    return {
        "metrics": metrics,
        "adapter": {name: tensor.clone() for name, tensor in found.weights.items()},
        "moments": found.moments,
        "reference": {name: tensor.clone() for name, tensor in found.reference.items()},
        "merged": {name: tensor.clone() for name, tensor in source.tensors()},
        "replica": {name: tensor.clone() for name, tensor in merged_tensors(source.module)},
    }
