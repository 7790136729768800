"""``train.gradient_checkpointing: auto``: recomputes as few layers as the memory allows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rlvr_core.api import DataReport, Json, RlvrError
from rlvr_core.parallel.ranks import Ranks
from rlvr_doctor.cards import CARDS, Card
from rlvr_doctor.planner.memory import memory_of
from rlvr_doctor.planner.setup import Setup, every_of, servers_of, setup_of
from rlvr_doctor.planner.shape import read_model

if TYPE_CHECKING:
    from rlvr_core.toolkit import Resolved

CHOICES = ("none", "every-4", "every-3", "every-2", "all")
"""From the fastest, which needs the most memory, to the slowest."""
MARGIN = 0.03
"""Share of the free memory that stays unused: formulas were up to 2 % below an H200's peaks."""
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice.

    Attributes:
        which: A value of ``train.gradient_checkpointing``.
        needs: Planned bytes of training by value, of those that were tried.
        fits: Whether the chosen one fits.
    """

    which: str
    needs: Mapping[str, float]
    fits: bool


def choose(setup: Setup, free: float) -> Choice:
    """Choose the first of ``CHOICES`` that fits into ``free`` bytes of each GPU; else ``all``."""
    needs: dict[str, float] = {}
    for which in CHOICES:
        needs[which] = memory_of(replace(setup, every=every_of(which))).training
        if needs[which] <= (1 - MARGIN) * free:
            return Choice(which, needs, True)
    return Choice("all", needs, False)


def choose_for_run(resolved: Resolved, model_path: str) -> DataReport:
    """Choose by what is free on this process's GPU.

    Processes that train together choose by the least that one of them has.

    Returns:
        ``choice``, and why, for ``run.json`` and the user.
    """
    import torch
    import torch.distributed as dist

    free, total = torch.cuda.mem_get_info()
    ranks = Ranks(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else Ranks()
    free = min(ranks.gather(free))
    try:
        setup = setup_for_run(resolved, model_path, ranks.world, total)
    except RlvrError as error:
        why = f"auto, and the memory cannot be planned: {error.complaints[0].what}"
        return _report("none", why, {"free_bytes": free})
    choice = choose(setup, free)
    return _report(choice.which, reason(choice, free), {"free_bytes": free, "fits": choice.fits})


def reason(choice: Choice, free: float) -> str:
    """Return the reason for a choice, in words."""
    need = choice.needs[choice.which] / GIB
    why = f"auto: training is planned to take {need:.1f} of the {free / GIB:.1f} GiB that are free"
    if not choice.fits:
        return f"{why}, which DOES NOT FIT; rlvr plan says what else to change"
    tried = [need for need in choice.needs if need != choice.which]
    if tried:
        why += f" ({tried[-1]} would take {choice.needs[tried[-1]] / GIB:.1f})"
    return why


def _report(which: str, why: str, more: Mapping[str, Json]) -> DataReport:
    record = {"choice": which, "reason": why, **more}
    return DataReport(
        "gradient_checkpointing", record, (f"gradient checkpointing: {which}, {why}",)
    )


def setup_for_run(resolved: Resolved, model_path: str, world: int, total: float) -> Setup:
    """Return the run as the planner has it.

    Servers and actors have GPUs of their own.

    Args:
        resolved: The configuration.
        model_path: The model's folder.
        world: Processes that train, each on a GPU.
        total: Bytes of each GPU.

    Raises:
        RlvrError: If the memory of such a model or run cannot be planned.
    """
    config = resolved.config
    shape, adapter = read_model(model_path, config.model)
    # its speed does not matter here
    card: Card = replace(CARDS["h100-80"], memory=total)
    count, beside = world, None
    if config.engine.use == "servers/vllm-server" and not config.engine.with_.get("urls"):
        count += servers_of(config.engine.with_)
    elif config.train.max_staleness > 0 and os.environ.get("RLVR_ENGINE_GPUS"):
        count, beside = 2 * world, world  # rlvr launch --engine-gpus keeps them for engines
    setup, _ = setup_of(resolved, card, count, beside, shape, adapter, None)
    return setup
