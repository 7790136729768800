"""Whether two evaluations have the same specification, and how they differ if not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlvr_core.api import Complaint, ConfigError
from rlvr_core.builtin.evals.spec import differences

Head = Mapping[str, Any]
"""The content of a ``spec.json``."""

MAY_DIFFER = ("code", "packages", "prompt", "sampling", "verifiers")
"""Parts of a specification that a comparison can allow to differ."""
_PARTS = {"prompts": "prompt", "seed": "sampling", "stop": "sampling", "rewards": "verifiers"}
"""Further keys of a specification that belong to one of these parts."""
_ADVICE = {
    "code": "the code of the verifiers has changed since: judge the older answers by the present "
    "one (rlvr regrade FOLDER), or evaluate again",
    "verifiers": "they were judged by other verifiers, or with other options: evaluate again with "
    "the same (rlvr regrade FOLDER says what another verifier makes of the answers)",
    "packages": "the code of rlvr or of a plugin is not the same: evaluate both by the present "
    "one, or put it back as it was (the folder 'patches' in each has the changes of a checkout)",
    "prompt": "the models were asked in other words: set prompt.chat_template, prompt.system and "
    "prompt.prefix alike in both",
}


@dataclass(frozen=True, slots=True)
class Pair:
    """Two evaluations of one task.

    Attributes:
        one: The first.
        other: The second, with verifiers named as in the first (see ``same_names``).
        problems: The problems of each, as stored.
        apart: In what they were made or judged apart, beside their specifications.
    """

    one: Head
    other: Head
    problems: tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]
    apart: Sequence[str]

    @property
    def lines(self) -> list[str]:
        """Return everything for which a comparison is refused."""
        return [
            *_unlike(self.one, self.other),
            *self.apart,
        ]


def refuse_unlike(pairs: Sequence[Pair], allowed: Sequence[str] = ()) -> None:
    """Refuse to compare evaluations that did not ask and judge alike.

    Args:
        pairs: Two evaluations of each task.
        allowed: Parts of the specification that may differ.

    Raises:
        ConfigError: If other parts differ; names them.
    """
    complaints = []
    for pair in pairs:
        lines = [line for line in pair.lines if _part(line) not in allowed]
        if lines:
            complaints.append(_complaint(pair, lines))
    if complaints:
        raise ConfigError.collect(complaints)


def _complaint(pair: Pair, lines: Sequence[str]) -> Complaint:
    parts = dict.fromkeys(map(_part, lines))
    advice = []
    for part in parts:
        if part == "problems":
            advice.append(_problems_apart(*pair.problems))
        elif part == "code" and not _edited(lines):
            continue  # other verifiers have other code
        elif part in _ADVICE:
            advice.append(_ADVICE[part])
    if all(part in MAY_DIFFER for part in parts):
        flags = " ".join(f"--allow {part}" for part in parts)
        advice.append(f"to compare all the same: {flags}")
    elif not advice:
        advice.append("evaluate both with the same settings")
    what = "they were not made and judged by the same code"
    if set(_unlike(pair.one, pair.other)) & set(lines):
        hashes = " and ".join(one["hash"][:16] for one in (pair.one, pair.other))
        what = f"their specifications differ ({hashes})"
    return Complaint(
        f"{pair.one['spec']['task']}: the evaluations are not comparable, {what}",
        remedy=(*lines, *advice),
    )


def _edited(lines: Sequence[str]) -> bool:
    """Whether a verifier that judged in both has other code or other verdicts."""
    code = [line for line in lines if _part(line) == "code"]
    return not all(line.endswith(" absent") or ": absent and" in line for line in code)


def _problems_apart(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> str:
    """Return in what the problems differ, and what to do."""
    first, second = ({row["id"]: row for row in rows} for rows in (one, other))
    lost, new = ([id_ for id_ in a if id_ not in b] for a, b in ((first, second), (second, first)))
    if lost or new:
        parts = [
            f"{len(ids)} only in the {word} ({', '.join(ids[:3])})"
            for word, ids in (("first", lost), ("second", new))
            if ids
        ]
        return f"they have other problems, {' and '.join(parts)}: evaluate both on the same"
    if [*first] != [*second]:
        return (
            "the problems are the same in another order: put the rows back in the order of the "
            "first, or evaluate both on the present file"
        )
    for key, word in (("prompt", "question"), ("tools", "tools"), ("tags", "tags")):
        edited = [id_ for id_ in first if first[id_].get(key) != second[id_].get(key)]
        if edited:
            return (
                f"the {word} of {len(edited)} of {len(first)} problems changed "
                f"({', '.join(edited[:3])}): evaluate both on the same data"
            )
    return (
        "questions are the same, and references or other fields of the problems changed: evaluate "
        "both on the same data"
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


def other_differences(one: Head, other: Head) -> tuple[str, ...]:
    """Return the other differences: allowed parts, engine, versions, tokens, name of the model."""
    lines = _unlike(one, other)
    lines += [f"{line} (prompts are the same)" for line in _idle(one, other)]
    for key in ("engine", "versions"):
        lines += differences({key: one[key]}, {key: other[key]})
    if one.get("prompt_tokens") != other.get("prompt_tokens"):
        lines.append("tokenizer: the prompts have other token ids")
    first, second = one["model"], other["model"]
    if first.get("path") == second.get("path") and first.get("sha256") != second.get("sha256"):
        lines.append(f"model: {first.get('path')} has {_other_files(first, second)} in each")
    return tuple(lines)


def _other_files(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return which files of the models differ, by their recorded hashes."""
    if one.get("weights") != other.get("weights") or one.get("weights") is None:
        return "other weights"
    return "the same weights, but other files of configuration or tokenizer"


def _unlike(one: Head, other: Head) -> list[str]:
    """Return the differences of the specifications, without those that follow from others."""
    lines = differences(one["spec"], other["spec"])
    if any(_part(line) == "problems" for line in lines):
        lines = [line for line in lines if not line.startswith("prompts.")]
    idle = _idle(one, other)
    return [line for line in lines if line not in idle]


def _idle(one: Head, other: Head) -> list[str]:
    """Return the differences of the section ``prompt`` that change no prompt."""
    first, second = one["spec"], other["spec"]
    asked = first.get("prompts")
    if asked is None or asked != second.get("prompts"):
        return []
    if first.get("environment") or second.get("environment"):
        return []  # what is said after the first turn is rendered by them too
    lines = differences({"prompt": first["prompt"]}, {"prompt": second["prompt"]})
    return [line for line in lines if line.startswith("prompt.")]


def same_names(one: Head, other: Head) -> dict[str, str]:
    """Return other names of the same functions and classes: of a file by another path.

    Returns:
        Names of verifiers in the first by their names in the second, where both have the same code
        and the same name in their file.
    """
    first, second = (head["spec"].get("code") or {} for head in (one, other))
    found: dict[str, str] = {}
    for name, digest in second.items():
        if name in first or digest is None:
            continue
        alike = [
            own
            for own, same in first.items()
            if same == digest and own not in second and _function(own) == _function(name)
        ]
        if len(alike) == 1 and _function(name) is not None:
            found[name] = alike[0]
    return found


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return JSON with verifiers renamed, as keys and as values."""
    if isinstance(value, Mapping):
        return {names.get(key, key): renamed(item, names) for key, item in value.items()}
    if isinstance(value, list):
        return [renamed(item, names) for item in value]
    return names.get(value, value) if isinstance(value, str) else value


def _function(name: str) -> str | None:
    """Return what a name of a verifier by file names in it; None for other names."""
    file, _, function = name.rpartition(":")
    return function if file.endswith(".py") else None


def _part(line: str) -> str:
    key = line.split(".", 1)[0].split(":", 1)[0]
    return _PARTS.get(key, key)
