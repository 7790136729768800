"""Whether two evaluations have the same specification, and how they differ if not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlvr_core.api import Complaint, ConfigError
from rlvr_core.builtin.evals.spec import differences

_HASH = re.compile("[0-9a-f]{16}")
Head = Mapping[str, Any]
"""The content of a ``spec.json``."""

MAY_DIFFER = ("code", "prompt", "sampling", "verifiers")
"""Parts of a specification that a comparison can allow to differ."""
_PARTS = {"prompts": "prompt", "seed": "sampling", "stop": "sampling", "rewards": "verifiers"}
"""Further keys of a specification that belong to one of these parts."""
_ADVICE = {
    "code": "the code of the verifiers has changed since: judge the older answers by the present "
    "one (rlvr regrade FOLDER), or evaluate again",
    "prompt": "the models were asked in other words: set prompt.chat_template, prompt.system and "
    "prompt.prefix alike in both",
}


def refuse_unlike(
    pairs: Sequence[tuple[Head, Head, Sequence[str]]], allowed: Sequence[str] = ()
) -> None:
    """Refuse to compare evaluations that did not ask and judge alike.

    Args:
        pairs: Two evaluations of each task, and in what their verifiers judged apart.
        allowed: Parts of the specification that may differ.

    Raises:
        ConfigError: If other parts differ; names them.
    """
    complaints = []
    for one, other, apart in pairs:
        unlike = (*_unlike(one, other), *apart, *_local_libraries(one, other))
        lines = [line for line in unlike if _part(line) not in allowed]
        if lines:
            parts = dict.fromkeys(map(_part, lines))
            what = "specifications" if one["hash"] != other["hash"] else "verifiers"
            advice = [_ADVICE[part] for part in parts if part in _ADVICE]
            if all(part in MAY_DIFFER for part in parts):
                flags = " ".join(f"--allow {part}" for part in parts)
                advice.append(f"to compare all the same: {flags}")
            elif not advice:
                advice.append("evaluate both with the same settings")
            complaints.append(
                Complaint(
                    f"{one['spec']['task']}: the evaluations are not comparable, their "
                    f"{what} differ ({one['hash'][:16]} and {other['hash'][:16]})",
                    remedy=(*lines, *advice),
                )
            )
    if complaints:
        raise ConfigError.collect(complaints)


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


def other_differences(one: Head, other: Head) -> tuple[str, ...]:
    """Return the other differences: allowed parts, engine, versions, tokens, name of the model."""
    lines = _unlike(one, other)
    for key in ("engine", "versions"):
        lines += differences({key: one[key]}, {key: other[key]})
    lines += _surroundings(one, other)
    if one.get("prompt_tokens") != other.get("prompt_tokens"):
        lines.append("tokenizer: the prompts have other token ids")
    first, second = one["model"], other["model"]
    if first.get("path") == second.get("path") and first.get("sha256") != second.get("sha256"):
        lines.append(f"model: {first.get('path')} has {_other_files(first, second)} in each")
    return tuple(lines)


def _surroundings(one: Head, other: Head) -> list[str]:
    """Return in what differs what verdicts depend on beside the code of the verifiers."""
    first, second = one.get("surroundings"), other.get("surroundings")
    if first is None or second is None:  # results of an earlier version
        return []
    lines = []
    for name in first.keys() & second.keys():  # other verifiers are another specification
        for key in sorted(first[name].keys() | second[name].keys()):
            values = [each[name].get(key, "none") for each in (first, second)]
            if values[0] != values[1]:
                lines.append(f"verifier {name}, {key}: {values[0]} and {values[1]}")
    return lines


def _local_libraries(one: Head, other: Head) -> list[str]:
    """Return the modules without a version that verifiers import, and that have other code."""
    return [
        f"code: {line}"
        for line in _surroundings(one, other)
        if ", library " in line and any(map(_HASH.fullmatch, line.rpartition(": ")[2].split()))
    ]


def _other_files(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return which files of the models differ, by their recorded hashes."""
    if one.get("weights") != other.get("weights") or one.get("weights") is None:
        return "other weights"
    return "the same weights, but other files of configuration or tokenizer"


def _unlike(one: Head, other: Head) -> list[str]:
    return differences(one["spec"], other["spec"])


def _part(line: str) -> str:
    key = line.split(".", 1)[0].split(":", 1)[0]
    return _PARTS.get(key, key)
