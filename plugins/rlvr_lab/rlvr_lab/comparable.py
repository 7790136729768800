"""Whether two evaluations asked and judged alike: by the hashes and options in their specs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_core.api import Complaint, ConfigError
from rlvr_core.eval.spec import differences

Head = Mapping[str, Any]
"""The content of a ``spec.json``."""

MAY_DIFFER = ("code", "prompt", "sampling", "verifiers")
"""Parts of a specification that a comparison can allow to differ."""
_PARTS = {"prompts": "prompt", "seed": "sampling", "stop": "sampling", "rewards": "verifiers"}
"""Further keys of a specification that belong to one of these parts."""
_ADVICE = {
    "code": "the code of the verifiers has changed since: evaluate again by the present one",
    "verifiers": "they were judged by other verifiers, or with other options: evaluate again with "
    "the same (rlvr regrade FOLDER says what another verifier makes of the answers)",
    "prompt": "the models were asked in other words: set prompt.chat_template, prompt.system and "
    "prompt.prefix alike in both",
    "problems": "they have other problems, or in another order: evaluate both on the same data",
}


def refuse_unlike(pairs: Sequence[tuple[Head, Head]], allowed: Sequence[str] = ()) -> None:
    """Refuse to compare evaluations that did not ask and judge alike.

    Args:
        pairs: Two evaluations of each task.
        allowed: Parts of the specification that may differ.

    Raises:
        ConfigError: If other parts differ; names them.
    """
    complaints = []
    for before, after in pairs:
        lines = [line for line in _unlike(before, after) if _part(line) not in allowed]
        if lines:
            complaints.append(_complaint(before, after, lines))
    if complaints:
        raise ConfigError.collect(complaints)


def _complaint(before: Head, after: Head, lines: Sequence[str]) -> Complaint:
    parts = dict.fromkeys(map(_part, lines))
    advice = [_ADVICE[part] for part in parts if part in _ADVICE]
    if all(part in MAY_DIFFER for part in parts):
        flags = " ".join(f"--allow {part}" for part in parts)
        advice.append(f"to compare all the same: {flags}")
    elif not advice:
        advice.append("evaluate both with the same settings")
    hashes = " and ".join(head["hash"][:16] for head in (before, after))
    return Complaint(
        f"{before['spec']['task']}: the evaluations are not comparable, their specifications "
        f"differ ({hashes})",
        remedy=(*lines, *advice),
    )


def refuse_spoilt(evaluations: Sequence[tuple[Path, Head, float]]) -> None:
    """Refuse evaluations that ended as failed, since too many answers were cut off.

    Args:
        evaluations: Folder, head and share of answers that were cut off, of each.

    Raises:
        ConfigError: If a share is above what its evaluation was told to accept.
    """
    complaints = []
    for folder, head, share in evaluations:
        accepted = head.get("max_truncated")
        if accepted is None or share <= accepted:  # other harnesses, results of old versions
            continue
        sampling = head["spec"]["sampling"]
        cap = "the token cap" if sampling is None else f"{sampling['max_tokens']} tokens"
        complaints.append(
            Complaint(
                f"{head['spec']['task']}: the evaluation is spoilt: {share:.1%} of its answers "
                f"were cut off at {cap}, more than {accepted:.1%}",
                where=str(folder),
                remedy=(
                    "evaluate again with a larger max_tokens, both models",
                    "if such answers shall count as they are: repeat the command that wrote it "
                    "with --allow-truncation, which samples nothing again",
                ),
            )
        )
    if complaints:
        raise ConfigError.collect(complaints)


def other_differences(before: Head, after: Head) -> tuple[str, ...]:
    """Return the other differences: allowed parts, engine, versions, tokens, name of the model."""
    lines = _unlike(before, after)
    lines += [f"{line} (prompts are the same)" for line in _without_effect(before, after)]
    for key in ("engine", "versions"):
        lines += differences({key: before[key]}, {key: after[key]})
    if before.get("prompt_tokens") != after.get("prompt_tokens"):
        lines.append("tokenizer: the prompts have other token ids")
    first, second = before["model"], after["model"]
    if first.get("path") == second.get("path") and first.get("sha256") != second.get("sha256"):
        lines.append(f"model: {first.get('path')} has other files in each")
    return tuple(lines)


def _unlike(before: Head, after: Head) -> list[str]:
    """Return the differences of the specifications, without those that follow from others."""
    lines = differences(before["spec"], after["spec"])
    if any(_part(line) == "problems" for line in lines):
        lines = [line for line in lines if not line.startswith("prompts.")]
    without_effect = _without_effect(before, after)
    return [line for line in lines if line not in without_effect]


def _without_effect(before: Head, after: Head) -> list[str]:
    """Return the differences of the section ``prompt`` that change no prompt."""
    first, second = before["spec"], after["spec"]
    rendered = first.get("prompts")
    if rendered is None or rendered != second.get("prompts"):
        return []
    if first.get("environment") or second.get("environment"):
        return []  # what is said after the first turn is rendered by them too
    lines = differences({"prompt": first["prompt"]}, {"prompt": second["prompt"]})
    return [line for line in lines if line.startswith("prompt.")]


def _part(line: str) -> str:
    key = line.split(".", 1)[0].split(":", 1)[0]
    return _PARTS.get(key, key)
