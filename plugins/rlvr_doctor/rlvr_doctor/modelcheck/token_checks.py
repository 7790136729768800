"""Checks a tokenizer, alone and with its model."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from rlvr_core.api import Finding, Message, Problem, one_line
from rlvr_core.data.prompts import Renderer
from rlvr_core.toolkit import PromptSection
from rlvr_doctor.examination.report import at_first
from rlvr_doctor.modelcheck.folder import ModelFolder, quiet

_SPARE = 0.1
"""Maximum share of embedding rows without a token, from padding of the vocabulary."""
_CHAT = re.compile(r"(^|[-_.])(it|chat|instruct)([-_.]|$)", re.IGNORECASE)
_OWN = "use the tokenizer that belongs to the model"


def vocabulary(subject: ModelFolder) -> Finding:
    """Check that every token has a row of the embedding, and most rows a token."""
    rows = _rows(subject)
    ids = subject.tokenizer.get_vocab()
    above = sorted((id_, token) for token, id_ in ids.items() if id_ >= rows)
    text = f"{len(ids):,} tokens, the embedding has {rows:,} rows"
    name = "tokenizer/vocabulary"
    if above:
        shown = at_first([f"{token!r} is {id_}" for id_, token in above], 2)
        return Finding(name, "fail", f"{text}; {shown}", f"{_OWN}, or enlarge the embedding")
    if rows - len(ids) > max(_SPARE * rows, 64):
        spare = f"{text}: {(rows - len(ids)) / rows:.0%} of them have no token"
        return Finding(name, "warn", f"{spare}; is it another model's tokenizer?", _OWN)
    return Finding(name, "ok", text)


def special(subject: ModelFolder) -> Iterator[Finding]:
    """Check that model and tokenizer agree on the tokens that end and pad a text."""
    rows, tokenizer = _rows(subject), subject.tokenizer
    ends = {
        "tokenizer": _token_ids(tokenizer.eos_token_id),
        "config.json": _token_ids(getattr(subject.config.get_text_config(), "eos_token_id", None)),
        "generation_config.json": _token_ids(_generation(subject).get("eos_token_id")),
    }
    pads = _token_ids(tokenizer.pad_token_id)
    eos_ids = {name: sorted(ids) for name, ids in ends.items() if ids}
    shown = ", ".join(
        f"{name} {' '.join(repr(_token(tokenizer, id_)) for id_ in ids)}"
        for name, ids in eos_ids.items()
    )
    outside = [id_ for ids in (*ends.values(), pads) for id_ in ids if not 0 <= id_ < rows]
    name = "tokenizer/special"
    if outside:
        text = f"the special tokens {outside} have no row of the embedding ({rows:,} rows)"
        yield Finding(name, "fail", text, _OWN)
    elif not eos_ids:
        yield Finding(
            name,
            "fail",
            "no token ends a text, so that every completion would be cut off",
            "set eos_token in tokenizer_config.json",
        )
    elif disagreement := _disagreement(ends):
        yield Finding(
            name,
            "warn",
            f"{disagreement} ({shown})",
            "generation ends at all of them; name in generation_config.json those of its training",
        )
    else:
        yield Finding(name, "ok", f"ends at: {shown}")


def template(subject: ModelFolder) -> Iterator[Finding]:
    """Check the chat template, and report what a run would do with it."""
    tokenizer = subject.tokenizer
    name = "tokenizer/template"
    with quiet():
        renderer = Renderer(tokenizer, PromptSection())
        description = renderer.describe()
    if not getattr(tokenizer, "chat_template", None):
        chat = _CHAT.search(subject.reference.rstrip("/").rpartition("/")[2])
        yield Finding(
            name,
            "warn" if chat else "note",
            "no chat template" + (", though it is a chat model by its name" if chat else ""),
            "put its chat_template.jinja beside the tokenizer" if chat else "",
        )
        return
    marker = "17 pens"
    problem = Problem("check", (Message("user", marker),), "", {}, "")
    try:
        text = renderer.text(problem)
    except Exception as error:
        text, description = "", f"the chat template cannot be rendered: {one_line(error)}"
    if marker not in text:
        description = description if not text else "the chat template leaves out what the user says"
        yield Finding(
            name, "fail", description, "use the chat template of the model's own repository"
        )
        return
    yield Finding(name, "note", description)


def _token_ids(value: Any) -> set[int]:
    """Return the ids of a config's field, which holds one, several or none."""
    if value is None or isinstance(value, bool):
        return set()
    return {int(id_) for id_ in value} if isinstance(value, list | tuple) else {int(value)}


def _rows(subject: ModelFolder) -> int:
    model, _ = subject.loaded
    return int(model.get_input_embeddings().weight.shape[0])


def _generation(subject: ModelFolder) -> dict[str, Any]:
    name = "generation_config.json"
    return subject.json(name) if (subject.folder / name).is_file() else {}


def _token(tokenizer: Any, id_: int) -> str:
    with contextlib.suppress(IndexError, OverflowError, TypeError):
        return str(tokenizer.convert_ids_to_tokens(id_))
    return str(id_)


def _disagreement(ends: dict[str, set[int]]) -> str:
    """Return which files lack the tokenizer's end token, in words; empty if none does."""
    tokenizer_ids = ends["tokenizer"]
    if not tokenizer_ids:
        return "the tokenizer has no token that ends a text"
    others: Iterable[str] = [name for name, ids in ends.items() if ids and not tokenizer_ids & ids]
    return f"the tokenizer's end of a text is not in {' and '.join(others)}" if others else ""
