"""Checks of numbers in the configuration, alone and beside each other."""

from __future__ import annotations

import math

from rlvr_core.api import VerifierTraits, traits_of
from rlvr_core.builtin.doctor.report import Answer, Check, at_first, outweighing
from rlvr_core.builtin.doctor.subject import Subject

STRONG_KL = 1.0
"""Weight of the KL penalty above which one nat of it exceeds any advantage of a usual group."""
WIDE_CLIP = 3.0
"""Bound of the ratio above which clipping does nothing; a percentage looks like that."""
SHRINKS = 0.01
"""Share of each weight that weight decay may take off in an update; recipes take 1e-5 or less."""
OUTWEIGHS = 10.0
"""Factor by which another reward may exceed the one that decides the outcome."""


def _loss(subject: Subject) -> list[Answer]:
    """Check the weight of the KL penalty and the clipping bounds of every term of the loss."""
    found = []
    for loc, ref in subject.limits.losses.items():
        place = ".".join(map(str, (*loc, "with")))
        if not ref.use.startswith("core/"):
            continue  # what others mean by these names is not known
        beta, high = ref.with_.get("beta"), ref.with_.get("clip_high")
        if isinstance(beta, int | float) and beta > STRONG_KL:
            found.append(
                Answer(
                    "warn",
                    f"{place}.beta: {beta:g}: 0.1 nats of KL from the reference cost "
                    f"{0.1 * beta:.3g}, advantages are about 1: the policy is held in place",
                    f"lower {place}.beta: 0.001 to 0.1 are usual",
                    weight=95,
                )
            )
        if isinstance(high, int | float) and high > WIDE_CLIP:
            found.append(
                Answer(
                    "warn",
                    f"{place}.clip_high: {high:g}: a ratio counts up to {1 + high:g}, so nothing "
                    "is clipped",
                    f"lower {place}.clip_high: 0.2 to 0.3 are usual (a fraction, no percentage)",
                    weight=88,
                )
            )
    return found or [Answer("ok", "weight of the KL and clipping bounds are in the usual range")]


def _rewards(subject: Subject) -> Answer | None:
    """Check whether another reward can exceed the one that decides the outcome."""
    plan = subject.prepared.judge.plan
    weights = plan.weights(0)
    main, others = 0.0, dict[str, float]()
    for problem in subject.sample:
        names = plan.names(problem)
        for name, weight in zip(names, weights, strict=True):
            limits = traits_of(plan.verifiers[name], VerifierTraits).reward_range or (0.0, 1.0)
            size = abs(weight) * (limits[1] - limits[0])
            if name == names[0]:
                main = max(main, size)
            else:
                others[name] = size
    found = outweighing(main, others, OUTWEIGHS)
    if found is None:
        return None
    name, most, outweighs = found
    value = f"the outcome is worth {main:g}, {name} up to {most:g}"
    if outweighs:
        return Answer(
            "warn",
            f"{value}: it outweighs the outcome",
            f"lower the weight of {name} in rewards: a share of the outcome's is usual",
            weight=112,
        )
    return Answer("ok", value)


def _decay(subject: Subject) -> Answer | None:
    """Check how much of the weights an update's decay takes off, at the peak learning rate."""
    train = subject.limits.train
    if not train.optimizer.use.startswith("core/"):
        return None  # what others mean by the name is not known
    decay = train.optimizer.with_.get("weight_decay", 0.0)
    if not isinstance(decay, int | float) or not decay:
        return None
    part = train.lr * decay
    value = (
        f"lr {train.lr:g} times weight_decay {decay:g} takes {100 * part:.3g} % off every weight"
    )
    if part <= SHRINKS:
        return Answer("ok", f"{value} in an update")
    return Answer(
        "warn",
        f"{value} in each update: in {math.ceil(math.log(2) / part)} updates half of the model is "
        "gone, whatever the rewards say",
        "lower train.optimizer.with.weight_decay: 0 to 0.1 are usual",
        weight=114,
    )


def _rank(subject: Subject) -> Answer | None:
    """Check whether the rank of adapters is below the size of the layers that they stand beside."""
    section = subject.config.model.lora
    if section is None:
        return None
    targets = section.target_modules
    head = subject.skeleton.get_output_embeddings()
    sizes = {
        name: min(one.weight.shape)
        for name, one in subject.skeleton.named_modules()
        if getattr(one, "weight", None) is not None
        and one.weight.ndim == 2
        and one is not head
        and (targets == "all-linear" or any(f".{name}".endswith(f".{t}") for t in targets))
    }
    small = [name for name, size in sizes.items() if size < section.rank]
    if not small:
        return Answer("ok", f"rank {section.rank}") if sizes else None
    least = min(sizes.values())
    return Answer(
        "warn",
        f"model.lora.rank: {section.rank} is more than the size of {len(small)} layers "
        f"({at_first(small)}): the adapters are larger than the matrices that they replace",
        f"lower model.lora.rank below {least}, or train the whole model (model.lora: null)",
        weight=87,
    )


SETTINGS: tuple[Check[Subject], ...] = (
    Check("config/loss", "Are KL and clipping of a usual size?", _loss),
    Check("config/rewards", "Does the outcome weigh most?", _rewards),
    Check("config/decay", "Does weight decay leave the weights?", _decay),
    Check("model/rank", "Is the rank below the size of the layers?", _rank),
)
