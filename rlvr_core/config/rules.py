"""Rules that need the chosen components as well as the keys: what does not go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlvr_core.api.errors import ConfigError
from rlvr_core.api.traits import EngineTraits, traits_of
from rlvr_core.config.load import Draft
from rlvr_core.config.model import RunConfig
from rlvr_core.config.tree import Loc

if TYPE_CHECKING:
    from rlvr_core.config.resolve import Component


def rule_faults(
    config: RunConfig, components: Mapping[Loc, Component], draft: Draft
) -> list[ConfigError]:
    """Every rule that the configuration breaks.

    Args:
        config: The configuration.
        components: Each component that was found by its place.
        draft: Where its values stand.
    """
    return [
        *_losses(config, components, draft),
        *_engine(components, draft),
        *_truncated_ratio(config, components, draft),
        *_truncated_drift(config, components, draft),
        *_mini_batches(config, components, draft),
    ]


def rule_warnings(config: RunConfig, draft: Draft) -> tuple[str, ...]:
    """What is allowed and yet likely wrong: sampling from a truncated distribution."""
    return tuple(
        f"sampling.{name} is {value}: completions come from a truncated distribution, the loss "
        f"assumes the full one, and the ratio between them is off "
        f"[{draft.root.where(('sampling', name))}]"
        for name, value in _cut(config)
    )


def _losses(
    config: RunConfig, components: Mapping[Loc, Component], draft: Draft
) -> list[ConfigError]:
    terms = {loc: components[loc] for loc in config.losses if loc in components}
    faults = []
    for loc, loss in terms.items():
        if getattr(loss.cls, "group", False) is True and config.sampling.n < 2:
            faults.append(
                ConfigError(
                    f"sampling.n is {config.sampling.n}, and {loss.entry.name} compares the "
                    f"completions of one problem with each other: with fewer than 2 every "
                    f"advantage is 0",
                    where=draft.root.where(("sampling", "n")),
                    remedy="set sampling.n to 2 or more (8 is usual)",
                )
            )
        if config.losses[loc].data is not None and not hasattr(loss.cls, "demonstrations"):
            faults.append(
                ConfigError(
                    f"{loss.entry.name} learns from completions and takes no data of its own",
                    where=draft.root.where((*loc, "data")),
                    remedy="its problems are those of data.sources",
                )
            )
    return [*faults, *_different_advantages(terms, draft)]


def _different_advantages(terms: Mapping[Loc, Component], draft: Draft) -> list[ConfigError]:
    """A completion has one advantage, so losses that use it must agree on how it is made."""
    for option in ("advantage", "combine"):
        asked = {
            loc: getattr(loss.config, option)
            for loc, loss in terms.items()
            if hasattr(loss.config, option)
        }
        if len(set(asked.values())) > 1:
            said = ", ".join(f"{terms[loc].entry.name}: {value}" for loc, value in asked.items())
            return [
                ConfigError(
                    f"the losses differ in '{option}' ({said}), and a completion has one advantage",
                    where=draft.root.where(list(asked)[-1]),
                    remedy=f"give all of them the same '{option}'",
                )
            ]
    return []


def _engine(components: Mapping[Loc, Component], draft: Draft) -> list[ConfigError]:
    engine = components.get(("engine",))
    if engine is None or not traits_of(engine.cls, EngineTraits).text_only:
        return []
    return [
        ConfigError(
            f"engine '{engine.entry.name}' gives text without token ids and log-probs, and takes "
            f"no weights: a run cannot train with it",
            where=draft.root.where(("engine",)),
            remedy="it is for rlvr eval and rlvr passk; to train, choose another or auto",
        )
    ]


def _cut(config: RunConfig) -> list[tuple[str, float]]:
    """What makes sampling one from a truncated distribution, and its value."""
    top_p, top_k = config.sampling.top_p, config.sampling.top_k
    options = [("top_p", top_p, top_p < 1), ("top_k", top_k, top_k > 0)]
    return [(name, value) for name, value, on in options if on]


def _truncated_ratio(
    config: RunConfig, components: Mapping[Loc, Component], draft: Draft
) -> list[ConfigError]:
    """What older weights sampled has the engine's log-probs alone to start the ratio from."""
    sampler = components.get(("sampler",))
    again = [("train.max_staleness", config.train.max_staleness, config.train.max_staleness > 0)]
    if sampler is not None:
        reads = getattr(sampler.config, "max_reads", 1)
        again.append(("the sampler's max_reads", reads, reads > 1))
    older = " and ".join(f"{name} ({value})" for name, value, on in again if on)
    if not older:
        return []
    return [
        ConfigError(
            f"with {older}, completions that older weights sampled are trained on: their ratio "
            f"starts at the engine's log-probs, and with sampling.{name} {value} these are of a "
            f"truncated distribution that the trainer's are not",
            where=draft.root.where(("sampling", name)),
            remedy=f"take sampling.{name} out, or train on fresh completions alone",
        )
        for name, value in _cut(config)
    ]


def _mini_batches(
    config: RunConfig, components: Mapping[Loc, Component], draft: Draft
) -> list[ConfigError]:
    """A step has no more mini-batches than groups, which are not split, nor than given answers."""
    losses = [components[loc] for loc in config.losses if loc in components]
    given = [loss for loss in losses if hasattr(loss.cls, "demonstrations")]
    wanted = config.train.mini_batches
    limits = [
        (getattr(loss.config, "rows_per_step", 0), f"given answers ({loss.entry.name})", "")
        for loss in given
    ]
    if len(given) < len(losses) and ("sampler",) in components:
        prompts = getattr(components["sampler",].config, "prompts_per_step", 0)
        limits.append(
            (prompts, "prompts (the sampler's prompts_per_step)", ", whose groups are not split")
        )
    return [
        ConfigError(
            f"mini_batches is {wanted}, and a step has {most} {of_what}{why}",
            where=draft.root.where(("train", "mini_batches")),
            remedy=f"set it to {most} or less; to update more often on the same completions, "
            f"set train.iterations",
        )
        for most, of_what, why in limits
        if 0 < most < wanted
    ]


def _truncated_drift(
    config: RunConfig, components: Mapping[Loc, Component], draft: Draft
) -> list[ConfigError]:
    """The mask measures from the engine's log-probs, which are higher by -log of what was kept."""
    masked = [
        loc
        for loc in config.losses
        if loc in components and getattr(components[loc].config, "off_policy_mask", None)
    ]
    return [
        ConfigError(
            f"off_policy_mask compares the policy with the engine's log-probs, and with "
            f"sampling.{name} {value} these are of a truncated distribution, higher than the "
            f"policy's own: fresh completions would be left out as if they were far from it",
            where=draft.root.where((*loc, "with", "off_policy_mask")),
            remedy=f"take off_policy_mask out, or sampling.{name}",
        )
        for loc in masked
        for name, value in _cut(config)
    ]
