"""Cross-component rules: combinations of keys and components that do not work together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    AdvantageTraits,
    ComponentConfig,
    ConfigError,
    EngineTraits,
    LossTraits,
    Names,
    OptimizerTraits,
    RlvrError,
    SamplerTraits,
    traits_of,
)
from rlvr_core.config.load import Draft
from rlvr_core.config.model import RunConfig
from rlvr_core.config.tree import Loc, Node
from rlvr_core.plugins.host import Host

if TYPE_CHECKING:
    from rlvr_core.config.resolve import Component


def rule_faults(
    config: RunConfig, components: Mapping[Loc, Component], draft: Draft
) -> list[RlvrError]:
    """Return one error for every rule that the configuration breaks.

    Args:
        config: The configuration.
        components: Each resolved component by its location.
        draft: The source of its values, for line numbers.
    """
    return [
        *_losses(config, components, draft),
        *_rewards(config, draft),
        *_engine(components, draft),
        *_truncated_ratio(config, components, draft),
        *_truncated_drift(config, components, draft),
        *_mini_batches(config, components, draft),
        *_shards(config, components, draft),
    ]


def rule_warnings(config: RunConfig, draft: Draft) -> tuple[str, ...]:
    """Return warnings about allowed but doubtful settings: top-p or top-k sampling."""
    return tuple(
        f"sampling.{name} is {value}: completions come from a truncated distribution, the loss "
        f"assumes the full one, and the ratio between them is off "
        f"[{draft.root.where(('sampling', name))}]"
        for name, value in _cut(config)
    )


def advantage_faults(
    config: RunConfig,
    components: Mapping[Loc, Component],
    draft: Draft,
    named: Callable[[str], Component],
) -> list[RlvrError]:
    """Return the errors in the combination of losses and advantage estimator.

    Args:
        config: The configuration.
        components: Each resolved component by its location.
        draft: The source of its values, for line numbers.
        named: Looks up the estimator that a loss names.
    """
    terms = {loc: components[loc] for loc in config.losses if loc in components}
    chosen = components.get(("advantage",))
    if len(terms) < len(config.losses) or (chosen is None and config.advantage.use != "auto"):
        return []  # already reported
    try:
        traits = {loc: loss.traits(LossTraits) for loc, loss in terms.items()}
        users = {loc: trait for loc, trait in traits.items() if trait.advantage is not None}
        names = {loc: str(trait.advantage) for loc, trait in users.items()}
        if chosen is None and len(set(names.values())) > 1:
            choices = ", ".join(f"{terms[loc].entry.name}: {name}" for loc, name in names.items())
            return [
                ConfigError(
                    f"the losses differ in 'advantage' ({choices}), and a completion has one "
                    f"advantage",
                    where=draft.root.where(list(names)[-1]),
                    remedy="say which estimator all of them take, such as advantage: group",
                )
            ]
        if not users:
            return [_unused(draft)] if chosen is not None else []
        estimator = chosen or named(next(iter(names.values())))
        wants = estimator.traits(AdvantageTraits)
    except RlvrError as error:
        return [error]
    faults: list[RlvrError] = []
    if config.sampling.n < wants.min_completions:
        faults.append(
            ConfigError(
                f"sampling.n is {config.sampling.n}, and {estimator.entry.name} compares at least "
                f"{wants.min_completions} completions of one problem: with fewer every advantage "
                f"is 0",
                where=draft.root.where(("sampling", "n")),
                remedy=f"set sampling.n to {wants.min_completions} or more (8 is usual)",
            )
        )
    for loc, trait in users.items():
        if wants.per_token and not trait.per_token_advantages:
            faults.append(
                ConfigError(
                    f"{estimator.entry.name} gives one advantage a token, and "
                    f"{terms[loc].entry.name} takes one a completion",
                    where=draft.root.where(loc),
                    remedy="choose a loss of token ratios, such as grpo or dapo, or another "
                    "estimator",
                )
            )
    return faults


def _unused(draft: Draft) -> ConfigError:
    return ConfigError(
        "advantage has no effect: no loss learns from rewards",
        where=draft.root.where(("advantage",)),
        remedy="take it out",
    )


def _losses(
    config: RunConfig, components: Mapping[Loc, Component], draft: Draft
) -> list[RlvrError]:
    faults: list[RlvrError] = []
    for loc, traits in _traits(config, components).items():
        if config.losses[loc].data is not None and traits.answers is None:
            faults.append(
                ConfigError(
                    f"{components[loc].entry.name} learns from completions and takes no data of "
                    f"its own",
                    where=draft.root.where((*loc, "data")),
                    remedy="its problems are those of data.sources",
                )
            )
    return faults


def _traits(config: RunConfig, components: Mapping[Loc, Component]) -> dict[Loc, LossTraits]:
    """Return the traits of each loss that has them; ``advantage_faults`` reports the others."""
    traits = {}
    for loc in config.losses:
        if loc in components:
            with contextlib.suppress(RlvrError):
                traits[loc] = components[loc].traits(LossTraits)
    return traits


def _rewards(config: RunConfig, draft: Draft) -> list[ConfigError]:
    if any(ref.weight or (ref.schedule and ref.schedule.to) for ref in config.rewards):
        return []
    return [
        ConfigError(
            "every reward has weight 0: there is nothing to learn from",
            where=draft.root.where(("rewards",)),
            remedy="give one of them a weight",
        )
    ]


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
    """Return the settings, and their values, that truncate the sampling distribution."""
    top_p, top_k = config.sampling.top_p, config.sampling.top_k
    options = [("top_p", top_p, top_p < 1), ("top_k", top_k, top_k > 0)]
    return [(name, value) for name, value, on in options if on]


def _truncated_ratio(
    config: RunConfig, components: Mapping[Loc, Component], draft: Draft
) -> list[ConfigError]:
    """Refuse truncated sampling if completions sampled by older weights are trained on.

    Their importance weights are computed from the engine's log-probs, which are then those of a
    truncated distribution.
    """
    sampler = components.get(("sampler",))
    again = [("train.max_staleness", config.train.max_staleness, config.train.max_staleness > 0)]
    if sampler is not None:
        with contextlib.suppress(RlvrError):  # reported again when the run starts
            reads = traits_of(sampler.make(), SamplerTraits).max_reads
            again.append(("the sampler's max_reads", reads, reads > 1))
    older = " and ".join(f"{name} ({value})" for name, value, on in again if on)
    if not older:
        return []
    return [
        ConfigError(
            f"with {older}, completions that older weights sampled are trained on: they are "
            f"weighted from the engine's log-probs, and with sampling.{name} {value} these are of "
            f"a truncated distribution that the trainer's are not",
            where=draft.root.where(("sampling", name)),
            remedy=f"take sampling.{name} out, or train on fresh completions alone",
        )
        for name, value in _cut(config)
    ]


def _mini_batches(
    config: RunConfig, components: Mapping[Loc, Component], draft: Draft
) -> list[ConfigError]:
    """Refuse more mini-batches than a step has groups (groups are not split) or given answers."""
    traits = _traits(config, components)
    own_data = {loc: trait.answers for loc, trait in traits.items() if trait.answers is not None}
    n = config.train.mini_batches
    limits = [
        (answers.rows_per_step, f"given answers ({components[loc].entry.name})", "")
        for loc, answers in own_data.items()
    ]
    if len(own_data) < len(traits):
        prompts = config.train.prompts_per_step
        limits.append((prompts, "prompts (train.prompts_per_step)", ", whose groups are not split"))
    return [
        ConfigError(
            f"mini_batches is {n}, and a step has {most} {of_what}{why}",
            where=draft.root.where(("train", "mini_batches")),
            remedy=f"set it to {most} or less; to update more often on the same completions, "
            f"set train.num_iterations",
        )
        for most, of_what, why in limits
        if 0 < most < n
    ]


def _shards(
    config: RunConfig, components: Mapping[Loc, Component], draft: Draft
) -> list[ConfigError]:
    """Refuse an optimizer that needs whole matrices if each process holds only a shard of them."""
    optimizer = components.get(("train", "optimizer"))
    if (
        optimizer is None
        or config.train.parallel == "ddp"
        or traits_of(optimizer.cls, OptimizerTraits).elementwise
    ):
        return []
    return [
        ConfigError(
            f"{optimizer.entry.name} updates whole parameters, and with train.parallel: "
            f"{config.train.parallel} a process has a part of them",
            where=draft.root.where(("train", "parallel")),
            remedy="set train.parallel: ddp, or train.optimizer: adamw",
        )
    ]


def _truncated_drift(
    config: RunConfig, components: Mapping[Loc, Component], draft: Draft
) -> list[ConfigError]:
    """Refuse truncated sampling with a mask on the drift from the engine's log-probs.

    The engine's log-probs are then renormalised: higher by -log of the probability mass kept.
    """
    options = {
        loc: traits.needs_untruncated
        for loc, traits in _traits(config, components).items()
        if traits.needs_untruncated is not None
    }
    return [
        ConfigError(
            f"{option} compares the policy with the engine's log-probs, and with "
            f"sampling.{name} {value} these are of a truncated distribution, higher than the "
            f"policy's own: fresh completions would be left out as if they were far from it",
            where=draft.root.where((*loc, "with", option)),
            remedy=f"take {option} out, or sampling.{name}",
        )
        for loc, option in options.items()
        for name, value in _cut(config)
    ]


def unknown_names(
    data: Mapping[str, Any], options: Mapping[Loc, ComponentConfig], root: Node, host: Host
) -> list[RlvrError]:
    """Return errors for components that are named in another component's options.

    For example, a loader of the user's own files has an option for the verifier of its problems,
    which is checked only if a reward uses each problem's own verifier; an environment has an option
    for its tool format.

    Args:
        data: The configuration as plain data; it may have other faults.
        options: Options of the valid components, by location.
        root: The tree they come from, for line numbers.
        host: The loaded plugins.
    """
    errors: list[RlvrError] = []
    own_verifiers = _asks(data.get("rewards", "auto"))
    for loc, section in options.items():
        named = [("tool_format", *names) for names in _named(section, "tool_format")]
        if own_verifiers and loc[:2] == ("data", "sources"):
            named += [("verifier", *one) for one in _named(section, "verifier")]
        for kind, field, name in named:
            try:
                host.entry(kind, name, root.where((*loc, "with", field)))
            except RlvrError as error:
                errors.append(error)
    return errors


def _asks(rewards: Any) -> bool:
    """Whether one of the rewards uses each problem's own verifier."""
    entries = rewards if isinstance(rewards, list) else [rewards]
    return any(
        (entry.get("use") if isinstance(entry, Mapping) else entry) == "auto" for entry in entries
    )


def _named(section: ComponentConfig, kind: str) -> list[tuple[str, str]]:
    """List the fields that name a component of this kind, each with the name given."""
    return [
        (field, str(getattr(section, field)))
        for field, info in type(section).model_fields.items()
        if Names(kind) in info.metadata and getattr(section, field) is not None
    ]
