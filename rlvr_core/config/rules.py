"""Cross-component rules: combinations of keys and components that do not work together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
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
from rlvr_core.config.model import RunConfig
from rlvr_core.config.tree import Loc, Node
from rlvr_core.plugins.host import Host

if TYPE_CHECKING:
    from rlvr_core.config.resolve import Component


def rule_warnings(config: RunConfig, root: Node) -> tuple[str, ...]:
    """Return warnings about allowed but doubtful settings: top-p or top-k sampling."""
    return tuple(
        f"sampling.{name} is {value}: completions come from a truncated distribution, the loss "
        f"assumes the full one, and the ratio between them is off "
        f"[{root.where(('sampling', name))}]"
        for name, value in _truncations(config)
    )


def _truncations(config: RunConfig) -> list[tuple[str, float]]:
    """Return the settings, and their values, that truncate the sampling distribution."""
    top_p, top_k = config.sampling.top_p, config.sampling.top_k
    options = [("top_p", top_p, top_p < 1), ("top_k", top_k, top_k > 0)]
    return [(name, value) for name, value, on in options if on]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for one configuration.

    Attributes:
        config: The configuration.
        components: Each resolved component by its location.
        root: The source of its values, for line numbers.
        estimator: Looks up the advantage estimator that a loss names.
    """

    config: RunConfig
    components: Mapping[Loc, Component]
    root: Node
    estimator: Callable[[str], Component]

    def faults(self) -> list[RlvrError]:
        """Return one error for every rule that the configuration breaks."""
        losses, faults = self._losses()
        return [
            *self._answers(losses),
            *self._rewards(),
            *self._engine(),
            *self._truncated_ratio(),
            *self._truncated_drift(losses),
            *self._mini_batches(losses),
            *self._shards(),
            *(faults or self._advantage(losses)),
        ]

    def _fault(self, loc: Loc, what: str, remedy: str) -> ConfigError:
        return ConfigError(what, where=self.root.where(loc), remedy=remedy)

    def _name(self, loc: Loc) -> str:
        return self.components[loc].entry.name

    def _losses(self) -> tuple[dict[Loc, LossTraits], list[RlvrError]]:
        """Return the traits of the losses that have them, and the errors of the others."""
        traits: dict[Loc, LossTraits] = {}
        faults: list[RlvrError] = []
        for loc in self.config.losses:
            if loc in self.components:
                try:
                    traits[loc] = self.components[loc].traits(LossTraits)
                except RlvrError as error:
                    faults.append(error)
        return traits, faults

    def _answers(self, losses: Mapping[Loc, LossTraits]) -> Iterator[ConfigError]:
        for loc, traits in losses.items():
            if self.config.losses[loc].data is not None and traits.answers is None:
                yield self._fault(
                    (*loc, "data"),
                    f"{self._name(loc)} learns from completions and takes no data of its own",
                    "its problems are those of data.sources",
                )

    def _rewards(self) -> Iterator[ConfigError]:
        if not any(ref.weight or (ref.schedule and ref.schedule.to) for ref in self.config.rewards):
            what = "every reward has weight 0: there is nothing to learn from"
            yield self._fault(("rewards",), what, "give one of them a weight")

    def _engine(self) -> Iterator[ConfigError]:
        engine = self.components.get(("engine",))
        if engine is not None and traits_of(engine.cls, EngineTraits).text_only:
            yield self._fault(
                ("engine",),
                f"engine '{engine.entry.name}' gives text without token ids and log-probs, and "
                f"takes no weights: a run cannot train with it",
                "it is for rlvr eval and rlvr passk; to train, choose another or auto",
            )

    def _truncated_ratio(self) -> Iterator[ConfigError]:
        """Refuse truncated sampling if completions sampled by older weights are trained on.

        Their importance weights are computed from the engine's log-probs, which are then those of
        a truncated distribution.
        """
        staleness, sampler = self.config.train.max_staleness, self.components.get(("sampler",))
        reasons = [f"train.max_staleness {staleness}"] if staleness > 0 else []
        if sampler is not None:
            with contextlib.suppress(RlvrError):  # reported again when the run starts
                reads = traits_of(sampler.make(), SamplerTraits).max_reads
                reasons += [f"the sampler's max_reads {reads}"] if reads > 1 else []
        for name, value in _truncations(self.config) if reasons else ():
            yield self._fault(
                ("sampling", name),
                f"training on completions of older weights ({' and '.join(reasons)}) needs exact "
                f"log-probs, and sampling.{name} {value} truncates them",
                f"remove sampling.{name}, or train on fresh completions alone",
            )

    def _truncated_drift(self, losses: Mapping[Loc, LossTraits]) -> Iterator[ConfigError]:
        """Refuse truncated sampling with a mask on the drift from the engine's log-probs.

        The engine's log-probs are then renormalised: higher by -log of the probability mass kept.
        """
        options = {loc: traits.needs_untruncated for loc, traits in losses.items()}
        for loc, option in options.items():
            for name, value in _truncations(self.config) if option is not None else ():
                yield self._fault(
                    (*loc, "with", str(option)),
                    f"{option} compares the policy with the engine's log-probs, and with "
                    f"sampling.{name} {value} these are of a truncated distribution, higher than "
                    f"the policy's own: fresh completions would be left out as if they were far "
                    f"from it",
                    f"take {option} out, or sampling.{name}",
                )

    def _mini_batches(self, losses: Mapping[Loc, LossTraits]) -> Iterator[ConfigError]:
        """Refuse more mini-batches than a step has groups (never split) or given answers."""
        count = self.config.train.mini_batches
        limits = [
            (traits.answers.rows_per_step, f"given answers ({self._name(loc)})")
            for loc, traits in losses.items()
            if traits.answers is not None
        ]
        if len(limits) < len(losses):
            prompts = self.config.train.prompts_per_step
            limits.append((prompts, "prompts (train.prompts_per_step), whose groups are not split"))
        for most, of_what in limits:
            if 0 < most < count:
                yield self._fault(
                    ("train", "mini_batches"),
                    f"mini_batches is {count}, and a step has {most} {of_what}",
                    f"set it to {most} or less; to update more often on the same completions, set "
                    f"train.num_iterations",
                )

    def _shards(self) -> Iterator[ConfigError]:
        """Refuse an optimizer of whole matrices if each process holds only a shard of them."""
        optimizer, parallel = (
            self.components.get(("train", "optimizer")),
            self.config.train.parallel,
        )
        if optimizer is None or parallel == "ddp":
            return
        if not traits_of(optimizer.cls, OptimizerTraits).elementwise:
            yield self._fault(
                ("train", "parallel"),
                f"{optimizer.entry.name} updates whole parameters, and with train.parallel: "
                f"{parallel} a process has a part of them",
                "set train.parallel: ddp, or train.optimizer: adamw",
            )

    def _advantage(self, losses: Mapping[Loc, LossTraits]) -> Iterator[RlvrError]:
        """Check that the losses and the advantage estimator go together."""
        chosen = self.components.get(("advantage",))
        named = self.config.advantage.use != "auto"
        if len(losses) < len(self.config.losses) or (named and chosen is None):
            return  # already reported
        users = {loc: traits for loc, traits in losses.items() if traits.advantage is not None}
        names = {loc: str(traits.advantage) for loc, traits in users.items()}
        if chosen is None and len(set(names.values())) > 1:
            choices = ", ".join(f"{self._name(loc)}: {name}" for loc, name in names.items())
            yield self._fault(
                list(names)[-1],
                f"the losses differ in 'advantage' ({choices}), and a completion has one advantage",
                "say which estimator all of them take, such as advantage: group",
            )
        elif users:
            try:
                estimator = chosen or self.estimator(next(iter(names.values())))
                yield from self._estimator(estimator, estimator.traits(AdvantageTraits), users)
            except RlvrError as error:
                yield error
        elif chosen is not None:
            what = "advantage has no effect: no loss learns from rewards"
            yield self._fault(("advantage",), what, "take it out")

    def _estimator(
        self, estimator: Component, wants: AdvantageTraits, users: Mapping[Loc, LossTraits]
    ) -> Iterator[ConfigError]:
        name, least = estimator.entry.name, wants.min_completions
        if self.config.sampling.n < least:
            yield self._fault(
                ("sampling", "n"),
                f"sampling.n is {self.config.sampling.n}, and {name} compares at least {least} "
                f"completions of one problem: with fewer every advantage is 0",
                f"set sampling.n to {least} or more (8 is usual)",
            )
        for loc, traits in users.items():
            if wants.per_token and not traits.per_token_advantages:
                yield self._fault(
                    loc,
                    f"{name} gives one advantage a token, and {self._name(loc)} takes one a "
                    f"completion",
                    "choose a loss of token ratios, such as grpo or dapo, or another estimator",
                )


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
