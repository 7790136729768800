"""Which advantage estimator a run has to have: by its configuration, and what `auto` promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlvr_core.api.services import RunConfig

_HERE = "rlvr_core.advantages"
_BUILT_IN = "rlvr_core.builtin.advantages"
CLASSES = {
    "group": f"{_HERE}:Group",
    "center": f"{_HERE}:Center",
    "batch": f"{_HERE}:Batch",
    "rloo": f"{_HERE}:Rloo",
    "group_std_ddof1": f"{_HERE}:GroupStdDdof1",
    "reinforce_plus_plus": f"{_BUILT_IN}.reinforce_plus_plus:ReinforcePlusPlus",
    "maxrl": f"{_BUILT_IN}.outcomes:MaxRL",
    "pass_at_k": f"{_BUILT_IN}.outcomes:PassAtK",
}
"""The class of each built-in estimator, as docs/losses.md names them."""

ON_REWARDS = frozenset(
    {"grpo", "dapo", "dr_grpo", "gspo", "gmpo", "vespo", "cispo", "sapo", "luspo", "reinforce"}
)
"""Built-in losses that learn from rewards, and so from advantages."""


def other_estimator(config: RunConfig, objective: Any) -> str:
    """Return how the estimator is not the configuration's; empty if it is, or is a plugin's.

    Args:
        config: The run's configuration.
        objective: The losses and the estimator that the run has.
    """
    named = zip(config.losses.values(), objective.terms, strict=False)
    uses = {
        use
        for ref, term in named
        if (use := ref.use.removeprefix("core/")) == term.name.partition("#")[0]
    }
    losses = ", ".join(sorted(uses & ON_REWARDS))
    due = config.advantage.use.removeprefix("core/")
    if due == "auto":
        due = "center" if "dr_grpo" in uses else "group"
    if not losses or due not in CLASSES:
        return ""
    if objective.estimator is None:
        return f"the run has no advantages, and {losses} learns from them"
    kind = type(objective.estimator.component)
    has = f"{kind.__module__}:{kind.__qualname__}"
    if has == CLASSES[due]:
        return ""
    return (
        f"the advantages are made by {has}, and advantage: {config.advantage.use} is {due} for "
        f"{losses}"
    )
