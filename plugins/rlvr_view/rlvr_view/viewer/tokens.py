"""Tokens as text with their numbers, in grades that the page's style sheet colours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr_core.toolkit import RunView, brief, finite

if TYPE_CHECKING:
    from tokenizers import Tokenizer

COLOURS = {
    "logprob": "log-prob",
    "gap": "trainer-engine gap",
    "advantage": "advantage",
    "mask": "loss mask",
    "version": "policy version",
    "none": "no colours",
}
"""Quantities by which tokens are coloured."""
GRADES = (0.05, 0.25, 0.7, 1.6, 3.0, 5.0)
"""Minimum surprise (minus log-prob, in nats) of each grade above 0."""
STRENGTHS = (0.25, 0.75, 1.5)
"""Minimum absolute advantage of each grade above 1."""
GAPS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Minimum |trainer - engine| log-prob, in nats, of each grade above 0."""
_LONGEST_PIECE = 8
"""Maximum tokens that are decoded together: one character may need several."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token on the page.

    Attributes:
        text: The text, or the id in brackets if no tokenizer is known.
        css: Its classes: surprise ``s0`` to ``s6``, gap ``g0`` to ``g6``, ``out`` of the loss,
            version ``v0`` to ``v3``.
        description: Position, id and numbers, in words.
    """

    text: str
    css: str
    description: str


def tokenizer_of(view: RunView) -> Tokenizer | None:
    """Return the tokenizer of a run, from its checkpoints, its model's folder or the hub's cache.

    Nothing is downloaded, and no code of the model is run.
    """
    places = [path / "tokenizer.json" for path in view.checkpoints[:1]]
    section = view.config.get("model")
    model = section.get("path") if isinstance(section, dict) else None
    if isinstance(model, str) and model:
        places.append(Path(model).expanduser() / "tokenizer.json")
        places += [path for path in (_cached(model),) if path is not None]
    for place in places:
        try:
            changed = place.stat().st_mtime_ns
        except (OSError, ValueError):
            continue
        if (tokenizer := _load(place, changed)) is not None:
            return tokenizer
    return None


@lru_cache(maxsize=8)
def _load(place: Path, _changed: int) -> Tokenizer | None:
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(place))
    except Exception:  # the library raises plain exceptions on what it cannot read
        return None


def _cached(model: str) -> Path | None:
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        path = try_to_load_from_cache(model, "tokenizer.json")
    except (HFValidationError, OSError, ValueError):
        return None
    return Path(path) if isinstance(path, str) else None


def pieces(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    """Return the text of each token; a character of several tokens stands at the last of them.

    A token is decoded after the one before it, since decoders drop a leading space.
    """
    texts, start = list[str](), 0
    for end in range(1, len(ids) + 1):
        context = list(ids[max(0, start - 1) : start])
        before = tokenizer.decode(context, skip_special_tokens=False) if context else ""
        whole = tokenizer.decode([*context, *ids[start:end]], skip_special_tokens=False)
        text = whole.removeprefix(before) if whole.startswith(before) else whole
        if text.endswith("\ufffd") and end - start < _LONGEST_PIECE and end < len(ids):
            texts.append("")
            continue
        texts.append(text)
        start = end
    return texts


def tokens(row: Mapping[str, Any], tokenizer: Tokenizer | None, limit: int) -> list[Token]:
    """Return the first tokens of a completion as recorded; empty if none were recorded."""
    ids = _numbers(row.get("token_ids"), limit)
    if not ids:
        return []
    logprobs, gaps = _numbers(row.get("logprobs"), limit), _numbers(row.get("gaps"), limit)
    mask, versions = (
        _numbers(row.get("loss_mask"), limit),
        _numbers(row.get("token_versions"), limit),
    )
    whole = [id for id in ids if isinstance(id, int) and 0 <= id < 2**31]
    texts = pieces(tokenizer, whole) if tokenizer and len(whole) == len(ids) else None
    newest = max((version for version in versions if isinstance(version, int)), default=0)
    result = []
    for place, id_ in enumerate(ids):
        logprob = finite(logprobs[place]) if place < len(logprobs) else None
        in_loss = bool(mask[place]) if place < len(mask) else None
        gap = finite(gaps[place]) if place < len(gaps) else None
        version = versions[place] if place < len(versions) else None
        css = [f"s{grade(-logprob)}"] if logprob is not None else []
        css += [f"g{sum(abs(gap) >= least for least in GAPS)}"] if gap is not None else []
        css += ["out"] * (in_loss is False)
        css += [f"v{min(3, max(0, newest - version))}"] if isinstance(version, int) else []
        facts = [f"token {place + 1}", f"id {id_}"]
        if logprob is not None:
            facts.append(f"log-prob {logprob:.3f}, probability {_share(logprob)}")
        facts += [f"trainer - engine {gap:+.2g} nats"] if gap is not None else []
        facts += {True: ["in the loss"], False: ["not in the loss"], None: []}[in_loss]
        facts += [f"sampled by version {version}"] if version is not None else []
        text = texts[place] if texts else f"[{id_}]"
        result.append(Token(text, " ".join(css), "; ".join(facts)))
    return result


def unlikely(row: Mapping[str, Any], shown_tokens: Sequence[Token]) -> list[tuple[str, str]]:
    """Return text and description of the eight tokens in the loss with the lowest log-probs."""
    logprobs = _numbers(row.get("logprobs"), len(shown_tokens))
    ranked = sorted(
        (value, place)
        for place, logprob in enumerate(logprobs)
        if (value := finite(logprob)) is not None and "out" not in shown_tokens[place].css.split()
    )
    return [
        (shown_tokens[place].text, shown_tokens[place].description)
        for value, place in ranked[:8]
        if value < -0.7
    ]


def grade(surprise: float) -> int:
    """Return the grade of a token by its surprise: 0 for certain, 6 for most unlikely."""
    return sum(surprise >= least for least in GRADES)


def strength(advantage: float | None) -> str:
    """Return the class of an advantage: ``a0``, ``up1`` to ``up4`` or ``down1`` to ``down4``."""
    if not advantage:
        return "a0"
    return ("up" if advantage > 0 else "down") + str(
        1 + sum(abs(advantage) >= least for least in STRENGTHS)
    )


def _share(logprob: float) -> str:
    share = math.exp(min(0.0, logprob))
    return f"{share:.1%}" if share >= 0.001 else brief(share, 6)


def _numbers(values: Any, limit: int) -> list[Any]:
    return values[:limit] if isinstance(values, list) else []
