"""The frozen specification of an evaluation: everything that must be equal for a comparison.

Model and engine are not part of it; they are recorded separately.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rlvr_core.api import (
    ComponentConfig,
    EvalTask,
    ExternalTask,
    Json,
    Problem,
    SamplingParams,
    VerifierTraits,
    traits_of,
)
from rlvr_core.config.resolve import find
from rlvr_core.config.tree import Mark, made
from rlvr_core.data.load import fingerprint
from rlvr_core.record.provenance.compare import flat

if TYPE_CHECKING:
    from rlvr_core.eval.config import EvalConfig
    from rlvr_core.plugins.host import Host
    from rlvr_core.verify.reward import RewardPlan

FORMAT = 2
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Spec:
    """A frozen specification.

    Attributes:
        content: JSON: task, options, sampling, stop strings, prompt, problems, verifiers.
    """

    content: Mapping[str, Json]

    @property
    def hash(self) -> str:
        """SHA-256 of the content as canonical JSON."""
        text = json.dumps(self.content, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def short(self) -> str:
        """The first 16 digits of the hash, which every result carries."""
        return self.hash[:16]

    @property
    def task(self) -> str:
        """Full name of the task."""
        return str(self.content["task"])

    @property
    def n(self) -> int:
        """Number of completions per problem."""
        return int(self.content["n"])


def make_spec(
    *,
    name: str,
    options: ComponentConfig,
    task: EvalTask,
    problems: Sequence[Problem],
    n: int,
    sampling: SamplingParams,
    config: EvalConfig,
    verifiers: Mapping[str, Json],
    code: Mapping[str, Json],
    environment: Mapping[str, Json] | None,
) -> Spec:
    """Freeze an evaluation.

    Prompt and rewards are left out for a task that asks the model in its own way, the seed for
    greedy decoding, and the rewards if the score is that of the problem's own verifier.

    Args:
        name: Full name of the task.
        options: Its options, with defaults filled in.
        task: The task.
        problems: Its problems, in order.
        n: Number of completions per problem.
        sampling: Sampling parameters.
        config: The evaluation's configuration.
        verifiers: Options of each verifier, by full name.
        code: Hash of the code of each of them.
        environment: Environment that plays the problems as conversations, and its limits.
    """
    external = task if isinstance(task, ExternalTask) else None
    stops = {stop for problem in problems for stop in problem.stop}
    content: dict[str, Json] = {
        "format": FORMAT,
        "task": name,
        "options": options.model_dump(mode="json", by_alias=True),
        "n": n,
        "sampling": None,
        "prompt": None if external else config.prompt.model_dump(mode="json"),
        "problems": {
            "n": len(problems),
            "ids": ids_hash([problem.id for problem in problems]),
            "sha256": fingerprint(problems),
        },
        "verifiers": dict(verifiers),
    }
    if external is None or external.samples():
        names = ("temperature", "top_p", "top_k", "max_tokens")
        content["sampling"] = {key: getattr(sampling, key) for key in names}
        stops |= set(sampling.stop)
        if sampling.temperature > 0:
            content["seed"] = config.seed
    content["stop"] = sorted(stops)
    rewards = [{"use": ref.use, "weight": ref.weight} for ref in config.rewards]
    if external is not None:
        content["identity"] = dict(external.identity())
    elif rewards != [{"use": "auto", "weight": 1.0}]:
        content["rewards"] = rewards
    if environment is not None:
        content["environment"] = dict(environment)
    if code:
        content["code"] = dict(code)
    return Spec(json.loads(json.dumps(content)))


def ids_hash(ids: Sequence[str]) -> str:
    """Return the SHA-256 of ids, in order."""
    return hashlib.sha256(json.dumps(list(ids)).encode()).hexdigest()


def verifier_options(
    plan: RewardPlan, host: Host
) -> tuple[dict[str, Json], dict[str, dict[str, Json]]]:
    """Return all options of each verifier of a plan, defaults included, by name of its verdicts.

    Options that cannot change a verdict are returned separately, for the verifiers that have some.
    """
    judging: dict[str, Json] = {}
    apart: dict[str, dict[str, Json]] = {}
    for key, spec in plan.specs.items():
        name = key.partition("#")[0]
        component = find(host, "verifier", name, spec.config, made({}, Mark("")), ())
        options = component.config.model_dump(mode="json", by_alias=True, round_trip=True)
        other = [
            option
            for option in traits_of(component.cls, VerifierTraits).beside
            if option in options
        ]
        if other:
            apart[key] = {option: options.pop(option) for option in other}
        judging[key] = options
    return judging, apart


def differences(first_value: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the differences between two JSON values, one line per key."""
    first, second = flat(first_value), flat(other)
    return [
        f"{key}: {_shown(first.get(key, _ABSENT))} and {_shown(second.get(key, _ABSENT))}"
        for key in sorted(first.keys() | second.keys())
        if first.get(key, _ABSENT) != second.get(key, _ABSENT)
    ]


def other_evaluation(head_before: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return what makes two ``spec.json`` files belong to different evaluations or models.

    A model read from a folder is identified by its content, not by its path.
    """
    first, second = (
        {"spec": head["spec"], "model": _identity(head["model"])} for head in (head_before, other)
    )
    return [line.removeprefix("spec.") for line in differences(first, second)]


def _identity(model: Mapping[str, Any]) -> dict[str, Any]:
    return {"sha256": model["sha256"]} if "sha256" in model else dict(model)


def _shown(value: Any) -> str:
    text = "absent" if value is _ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
