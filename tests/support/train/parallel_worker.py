"""One process of test_parallel: optimizer steps of a tiny model under DDP and FSDP."""

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from rlvr_core.algorithm.estimate import Estimator
from rlvr_core.api import Completion, Group, Judged, LossOutput, LossTraits, NoConfig, Problem
from rlvr_core.config.model import ReferenceSection, RunConfig, TrainSection
from rlvr_core.engines.sync import ModuleSource
from rlvr_core.engines.vllm.probe import source_logprobs
from rlvr_core.losses import DAPO, GRPO, GSPO, SFT
from rlvr_core.parallel.fsdp.gathered_source import GatheredSource
from rlvr_core.parallel.model import ParallelModel
from rlvr_core.parallel.ranks import joined
from rlvr_core.plugins.host import load_host
from rlvr_core.run.inputs import row_split
from rlvr_core.step import checkpoint
from rlvr_core.step.batch import Row
from rlvr_core.step.forward import probe_forward_path
from rlvr_core.step.model import Precision
from rlvr_core.step.objective import LossTerm, Objective
from rlvr_core.step.optim import AdamW, Constant, Optimizer
from rlvr_core.step.reference import SeparateModel
from rlvr_core.step.step import PolicyTrainer
from tests.support.train.small import estimator_for

ADAMW, CONSTANT = AdamW(AdamW.Config()), Constant(NoConfig())


def groups(n_groups, seed=0):
    """Groups of three completions of different lengths, rewards 0, 0.5 and 1.

    The last of every second group is a conversation with a branch behind another prompt.
    """
    generator = torch.Generator().manual_seed(seed)
    made = []
    for index in range(n_groups):
        prompt = tuple(torch.randint(3, 60, (4 + index,), generator=generator).tolist())
        members = []
        for place in range(3):
            length = 2 + 3 * place + index
            ids = tuple(torch.randint(3, 60, (length,), generator=generator).tolist())
            answer = Completion(prompt, ids, (-4.0,) * length, (True,) * length, "", "stop", 0)
            if index % 2 and place == 2:
                other = Completion((7, 8), ids[:2], (-4.0,) * 2, (False, True), "", "stop", 0)
                answer = replace(answer, branches=(other,))
            members.append(Judged(answer, {}, place / 2, None))
        problem = Problem(f"p{index}", "x", "v", {}, "d")
        made.append(Group(problem, tuple(members), 0))
    return made


@dataclass
class Poisoned:
    """A loss that is not finite for rows of one length, which one process alone has."""

    inner: GRPO
    length: int
    on: bool = False
    traits: LossTraits = LossTraits(advantage="group", per_token_advantages=True)  # noqa: RUF009

    def __call__(self, batch, normalizer):
        output = self.inner(batch, normalizer)
        if self.on and self.length in batch.mask_BT.sum(1).tolist():
            return LossOutput(output.loss * torch.nan, output.sums, output.maxima)
        return output


class Answers:
    """Given answers, five a step: more than one process gets."""

    def rows(self, step):
        lengths = range(2, 7)
        return [
            Row((4, 5 + n), tuple(range(6, 6 + n)), (True,) * n, (0.0,) * n, 0.0) for n in lengths
        ]


def sum_of_losses():
    """Everything that needs more than a forward pass of the policy, in one sum."""
    from rlvr_algos.distillation.losses import OPSD
    from rlvr_algos.distillation.teacher import Teacher

    control = {"target": 2.0, "step": 0.005}
    full = {"entropy_bonus": 0.01, "top_entropy": 0.5, "entropy_control": control}
    return [
        LossTerm("dapo", DAPO(DAPO.Config(**full)), 0.7),
        LossTerm("gspo", GSPO(GSPO.Config()), 0.3),
        LossTerm("sft", SFT(SFT.Config()), 0.2, demonstrations=Answers()),
        LossTerm(
            "opsd",
            OPSD(OPSD.Config(prompt="x", top_k=9)),
            0.5,
            teacher=Teacher(9, prompt=lambda problem: (7, 8, 9, 10)),
        ),
    ]


def other_model(folder, seed):
    """A frozen model near the policy's first weights."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=draw))
    return model.requires_grad_(False)


def held_to_others(folder):
    """A KL term, and a teacher that is a model of its own."""
    from rlvr_algos.distillation.losses import GKD
    from rlvr_algos.distillation.teacher import Teacher

    return [
        LossTerm("kl", GRPO(GRPO.Config(beta=0.2)), 0.5),
        LossTerm(
            "gkd",
            GKD(GKD.Config(teacher="x", top_k=9)),
            0.5,
            teacher=Teacher(9, other_model(folder, 1)),
        ),
    ]


def trainer_of(folder, ranks, strategy, dtype, terms, *, reference=None, estimator=None, **train):
    torch.manual_seed(0)
    section = TrainSection(
        steps=10, lr=1e-3, warmup_steps=0, tokens_per_micro_batch=40, parallel=strategy, **train
    )
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    precision = Precision(dtype)
    frozen = [term.teacher.model for term in terms if term.teacher and term.teacher.model]
    held_to = None
    if reference is not None:
        held_to = SeparateModel(other_model(folder, 2), model, ReferenceSection(**reference))
        frozen.append(held_to.model)
    parallel = None
    if ranks.world > 1:
        parallel = ParallelModel(ranks, strategy, section.shard_size, split_of(section))
        options = {"temperature": 1.0, "autocast_dtype": precision.autocast}
        probe_forward_path(model)
        parallel.add(model, trained=True, **options)
        for other in frozen:
            probe_forward_path(other)
            parallel.add(other, trained=False, **options)
    return PolicyTrainer(
        model=model,
        reference=held_to,
        objective=Objective(tuple(terms), estimator or estimator_for(terms)),
        optimizer=Optimizer(model, section, dtype, ADAMW, CONSTANT),
        precision=precision,
        train=section,
        temperature=1.0,
        max_completion_tokens=20,
        reward_weights=lambda step: (1.0,),
        ranks=ranks,
        parallel=parallel,
    )


def split_of(section):
    """The processes that share micro-batches, where there are such."""
    data = {"sources": [{"use": "core/jsonl"}]}
    config = RunConfig(model={"path": "m"}, data=data, train=section, run={"timeout": 60})
    split = row_split(load_host(), config)
    if split is not None:
        split.connect()
    return split


def steps(folder, ranks, strategy, dtype, *, summed=False, reference=None, **more):
    """Four steps: many groups, one group, a poisoned one, many again."""
    loss = Poisoned(GRPO(GRPO.Config()), length=2)
    terms = [LossTerm("grpo", loss), *(sum_of_losses() if summed else ())]
    if reference is not None:
        terms += held_to_others(folder)
    trainer = trainer_of(folder, ranks, strategy, dtype, terms, reference=reference, **more)
    reports, version = [], 0
    for step, (n_groups, poison) in enumerate([(5, False), (1, False), (5, True), (5, False)]):
        loss.on = poison
        fresh = [replace(group, version=version) for group in groups(n_groups, seed=step)]
        reports.append(trainer.update(fresh, step, version))
        version += reports[-1].applied
    ours, theirs = trainer.logprobs(groups(3))
    source = ModuleSource(trainer.model)
    if trainer.parallel is not None and trainer.parallel.sharded:
        source = GatheredSource(trainer.model, trainer.parallel)
    state = checkpoint.collect(trainer.model, trainer.optimizer, trainer.reference)
    return {
        "metrics": [report.metrics for report in reports],
        "applied": [update.applied for report in reports for update in report.updates],
        "scale": trainer.optimizer.scaler.get_scale(),
        "parity": (ours.sort().values, len(theirs)),
        "probe": source_logprobs(source, (5, 6, 7), (8, 9, 10), dtype),
        "weights": {name: tensor.clone() for name, tensor in state.weights.items()},
        "moments": state.moments,
        "reference": {k: v.clone() for k, v in state.reference.items()},
    }


# old log-probs, a reference that moves within a step, other models, answers of their own
SEVERAL = {
    "summed": True,
    "reference": {"sync_every": 2, "ema": 0.5},
    "mini_batches": 2,
    "num_iterations": 2,
}


def per_token():
    """One advantage a token, with the KL to the reference: normalised over all processes."""
    from rlvr_algos.advantages import ReinforcePlusPlus

    of_tokens = ReinforcePlusPlus(ReinforcePlusPlus.Config(beta=0.5))
    return {"reference": {}, "estimator": Estimator("algos/reinforce_plus_plus", of_tokens)}


CASES = {
    "ddp": ("ddp", torch.float32, {}),
    "fsdp": ("fsdp", torch.float32, {}),
    "sum-ddp": ("ddp", torch.float32, {"summed": True}),
    "sum-fsdp": ("fsdp", torch.float32, {"summed": True}),
    "frozen-ddp": ("ddp", torch.float32, {"reference": {}}),
    "frozen-fsdp": ("fsdp", torch.float32, {"reference": {}}),
    "moving-ddp": ("ddp", torch.float32, {"reference": {"sync_every": 1, "ema": 0.5}}),
    "moving-fsdp": ("fsdp", torch.float32, {"reference": {"sync_every": 1, "ema": 0.5}}),
    "several-ddp": ("ddp", torch.float32, SEVERAL),
    "several-fsdp": ("fsdp", torch.float32, SEVERAL),
    "tokens-ddp": ("ddp", torch.float32, per_token),
    "tokens-fsdp": ("fsdp", torch.float32, per_token),
    "clipped": ("fsdp", torch.float32, {"max_grad_norm": 1e-3}),
    "half": ("fsdp", torch.float16, {}),
}


def everything(folder, ranks):
    return {
        name: steps(folder, ranks, strategy, dtype, **(train() if callable(train) else train))
        for name, (strategy, dtype, train) in CASES.items()
    }


def main(everything, folder, out):
    """What one of several processes finds, in a file; the process ends here."""
    with joined(60.0) as ranks:
        results = everything(folder, ranks)
        torch.save(results, Path(out) / f"rank{ranks.index}.pt")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # see rlvr_core.launch.rank


if __name__ == "__main__":
    main(everything, *sys.argv[1:])
