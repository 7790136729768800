"""Builds the learner: the policy, its reference and teachers, and the loss terms."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch

from rlvr_core.algorithm.estimate import Estimator
from rlvr_core.api import EngineTraits, traits_of
from rlvr_core.config.tree import numbered
from rlvr_core.engines.sync import ModuleSource
from rlvr_core.parallel.model_adapter import adapter_of, chosen_adapter
from rlvr_core.parallel.ranks import Ranks
from rlvr_core.run.inputs import row_split
from rlvr_core.step.model import (
    DTYPES,
    Precision,
    enable_checkpointing,
    load_policy,
    load_reference,
)
from rlvr_core.step.objective import LossTerm, Objective
from rlvr_core.step.optim import Optimizer
from rlvr_core.step.step import PolicyTrainer

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transformers import PreTrainedModel

    from rlvr_core.api import Engine, Loss, OptimizerBuilder, Schedule, Source, WeightSource
    from rlvr_core.config.model import SourceRef
    from rlvr_core.config.tree import Loc
    from rlvr_core.run.inputs import Inputs
    from rlvr_core.step.objective import MakeTeacher
    from rlvr_core.step.reference import Reference


ONE_THREAD = 500_000
"""Number of parameters below which a model on a CPU uses one thread."""


def trainer_device() -> torch.device:
    """Return the device this process trains on."""
    from accelerate import PartialState

    return torch.device(PartialState().device)


def build_trainer(
    inputs: Inputs,
    losses: Mapping[Loc, Loss],
    teachers: Mapping[Loc, MakeTeacher],
    checkpointing: str,
    engine: Engine,
    ranks: Ranks,
) -> tuple[PolicyTrainer, WeightSource]:
    """Build the trainer, and the source of the weights that engines load.

    Args:
        inputs: What the run begins with.
        losses: The terms of the loss by their location.
        teachers: Loader of each teacher, by the location of the loss that distils it.
        checkpointing: Which layers are computed again in the backward pass.
        engine: The engine, not started yet.
        ranks: The processes of the run.
    """
    config = inputs.config
    train, precision = config.train, Precision(DTYPES[config.model.dtype])
    device = trainer_device()
    if (split := row_split(inputs.resolved.host, config)) is not None:
        split.connect()
    parallel = None
    if ranks.world > 1:
        from rlvr_core.parallel.model import ParallelModel

        parallel = ParallelModel(ranks, train.parallel, train.shard_size, split)
    # a sharded model is moved to its device layer by layer
    sharded = parallel is not None and parallel.sharded
    place = torch.device("cpu") if sharded else device
    torch.manual_seed(config.run.seed)
    whole_copy = device if sharded and shares_model(engine) else None
    dtype = torch.float32
    if sharded and whole_copy is None and config.model.lora is None:
        from rlvr_core.parallel.fsdp.loading import stored_dtype

        dtype = stored_dtype(inputs.model_path, config.model)
    model = _policy(inputs, checkpointing, place, precision, dtype)
    objective = _objective(inputs, losses, teachers, place, precision)
    reference = None
    if objective.needs_reference:
        reference = _reference(inputs, model, place, precision)
    compiled = None
    if train.compile:
        from rlvr_core.compiling.layers import compiled_model

        compiled = compiled_model(model)
    source: WeightSource = ModuleSource(model)
    if parallel is not None and sharded:
        from rlvr_core.parallel.fsdp.gathered_source import GatheredSource

        source = GatheredSource(model, parallel, whole_copy)
    builder: OptimizerBuilder = inputs.resolved.make(("train", "optimizer"))
    schedule: Schedule = inputs.resolved.make(("train", "lr_schedule"))
    if parallel is not None:
        options = {
            "temperature": config.sampling.temperature,
            "autocast_dtype": precision.autocast,
        }
        parallel.add(model, trained=True, compiled=compiled, **options)
        # a reference that is the policy without its adapter was added with the policy
        separate = reference and reference.own_model
        for frozen in [*([separate] if separate else []), *objective.teachers]:
            parallel.add(frozen, trained=False, **options)
    trainer = PolicyTrainer(
        model=model,
        reference=reference,
        objective=objective,
        optimizer=Optimizer(model, train, precision.compute, builder, schedule),
        precision=precision,
        train=train,
        temperature=config.sampling.temperature,
        max_completion_tokens=config.sampling.max_tokens,
        reward_weights=inputs.judge.plan.weights,
        advantage_scale=_advantage_scale(config.data.sources, inputs.sources),
        compiled=compiled,
        seed=config.run.seed,
        ranks=ranks,
        parallel=parallel,
    )
    return trainer, source


def shares_model(engine: Engine) -> bool:
    """Whether an engine needs the trainer's model object itself, not just named weights."""
    traits = traits_of(engine, EngineTraits)
    return not (traits.separate or traits.own_weights)


def _policy(
    inputs: Inputs,
    checkpointing: str,
    place: torch.device,
    precision: Precision,
    dtype: torch.dtype,
) -> PreTrainedModel:
    config = inputs.config
    model = load_policy(inputs.model_path, config.model, place, dtype)
    _spare_threads(model)
    enable_checkpointing(model, checkpointing)
    chosen_adapter(config.model.lora).install(
        model,
        config.model.lora,
        seed=config.run.seed,
        compute=precision.compute,
        path=inputs.model_path,
        revision=config.model.revision,
        where=inputs.resolved.where(("model", "lora", "target_modules")),
    )
    return model


def _objective(
    inputs: Inputs,
    losses: Mapping[Loc, Loss],
    teachers: Mapping[Loc, MakeTeacher],
    device: torch.device,
    precision: Precision,
) -> Objective:
    """Build the loss terms; repeated names get ``#2`` and so on."""
    refs = inputs.config.losses
    names = numbered(ref.use.rpartition("/")[2] for ref in refs.values())
    terms: list[LossTerm] = []
    for name, (loc, ref) in zip(names, refs.items(), strict=True):
        make_teacher = teachers.get(loc)
        terms.append(
            LossTerm(
                name=name,
                loss=losses[loc],
                weight=ref.weight,
                demonstrations=inputs.data.demonstrations.get(loc),
                teacher=None if make_teacher is None else make_teacher(device, precision.compute),
            )
        )
    advantage = inputs.resolved.advantage()
    if advantage is None:
        return Objective(tuple(terms))
    component = inputs.resolved.build("advantage", advantage)
    return Objective(tuple(terms), Estimator(advantage.use, component))


def _advantage_scale(refs: Sequence[SourceRef], sources: Sequence[Source]) -> dict[str, float]:
    """Return the advantage factor of each problem whose source sets one."""
    return {
        problem.id: ref.advantage_scale
        for ref, source in zip(refs, sources, strict=True)
        if ref.advantage_scale != 1
        for problem in source.problems
    }


def _reference(
    inputs: Inputs, policy: PreTrainedModel, place: torch.device, precision: Precision
) -> Reference:
    from rlvr_core.step.reference import SeparateModel, UnderAdapter

    section = inputs.config.train.reference
    if adapter_of(policy).keeps_base:
        return UnderAdapter(policy, section)
    # sums over small parts must not round in between
    dtype = precision.compute if section.ema == 1.0 else torch.float32
    home = torch.device("cpu") if section.offload else place
    model = load_reference(inputs.model_path, inputs.config.model, home, dtype)
    if section.offload:
        from rlvr_core.parallel.offload import offload

        offload(model, place)
    return SeparateModel(model, policy, section)


def _spare_threads(model: PreTrainedModel) -> None:
    """Limit a small model to one thread, where a second one would mostly wait.

    A step of a model this small is a string of operations of some microseconds. With two threads
    the quick start took 2 to 4 times the CPU time of one on a machine with other work, and no less
    wall time on an idle one. ``OMP_NUM_THREADS`` has the last word.
    """
    small = sum(parameter.numel() for parameter in model.parameters()) < ONE_THREAD
    if small and model.device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
