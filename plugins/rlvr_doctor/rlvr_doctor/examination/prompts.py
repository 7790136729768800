"""Checks of the rendered prompts, token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlvr_core.api import Finding
from rlvr_core.step.model import max_positions
from rlvr_doctor.examination.report import Check, at_first, share
from rlvr_doctor.examination.subject import Subject, text_of


def visible(tokenizer: Any, ids: Sequence[int]) -> str:
    """Return a prompt as text with visible special tokens and line ends."""
    special = set(tokenizer.all_special_ids) | {
        id_ for id_, token in tokenizer.added_tokens_decoder.items() if token.special
    }
    parts: list[str] = []
    plain: list[int] = []
    for token in [*ids, None]:
        if token is not None and token not in special:
            plain.append(token)
            continue
        if plain:
            parts.append(tokenizer.decode(plain))
            plain = []
        if token is not None:
            parts.append(f"\u27e6{tokenizer.convert_ids_to_tokens(token)}\u27e7")
    return "".join(parts).replace("\n", "\u21b5\n")


def _bos(subject: Subject) -> Finding:
    tokenizer = subject.tokenizer
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    twice = [
        problem.id
        for problem, ids in subject.rendered
        if bos is not None and tuple(ids[:2]) == (bos, bos)
    ]
    if twice:
        return Finding(
            "prompt/bos",
            "fail",
            f"{share(len(twice), len(subject.rendered))} prompts begin with two "
            f"{tokenizer.bos_token}: {at_first(twice)}",
            "take the token out of the data, data.prompt.system or the chat template: the "
            "tokenizer adds it",
        )
    ended = [
        problem.id
        for problem, ids in subject.rendered
        if ids[-1:] == (eos,) and not subject.prepared.renderer.as_chat(problem)
    ]
    if ended:
        return Finding(
            "prompt/bos",
            "fail",
            f"{share(len(ended), len(subject.rendered))} prompts end with the end-of-text token: "
            f"{at_first(ended)}",
            "take it out of the data, data.prompt or the tokenizer's post-processor",
        )
    first = "none" if bos is None else repr(tokenizer.bos_token)
    with_bos = sum(ids[:1] == (bos,) for _, ids in subject.rendered)
    what = f"BOS token {first}, at the start of {with_bos} of {len(subject.rendered)}"
    return Finding("prompt/bos", "ok", what)


def _inside(subject: Subject) -> Finding:
    """Check for special tokens in the text of the problems."""
    names = {str(token) for token in subject.tokenizer.all_special_tokens if len(str(token)) > 2}
    texts = {"data.prompt.system": subject.config.data.prompt.system or ""}
    texts |= {problem.id: text_of(problem) for problem in subject.sample}
    holding = [where for where, text in texts.items() if any(name in text for name in names)]
    if not holding:
        return Finding("prompt/special", "ok", f"none in {len(subject.sample)} prompts")
    return Finding(
        "prompt/special",
        "fail",
        f"{share(len(holding), len(texts))} texts hold special tokens, such as {holding[0]}",
        "take them out: the template and the tokenizer put special tokens where they belong",
    )


def _round_trip(subject: Subject) -> Finding:
    encode, decode = subject.prepared.renderer.encode, subject.tokenizer.decode
    unknown = subject.tokenizer.unk_token_id
    texts = [text_of(problem) for problem in subject.sample]
    texts += [reference.response for reference in subject.references]
    encoded = [list(encode(text)) for text in texts]
    lost = sum(unknown is not None and unknown in ids for ids in encoded)
    if lost:
        return Finding(
            "prompt/round_trip",
            "fail",
            f"{share(lost, len(texts))} texts hold characters that the tokenizer cannot write",
            "use the tokenizer that belongs to the model",
        )
    changed = [
        text
        for text, ids in zip(texts, encoded, strict=True)
        if "".join(text.split()) != "".join(str(decode(ids)).split())
    ]
    if changed:
        return Finding(
            "prompt/round_trip",
            "warn",
            f"{share(len(changed), len(texts))} texts come back changed, such as "
            f"{changed[0][:40]!r}",
            "check that the tokenizer belongs to the model, and turn its clean-up options off",
        )
    return Finding("prompt/round_trip", "ok", f"{len(texts)} texts come back unchanged")


def _context(subject: Subject) -> Finding:
    config, prepared = subject.config, subject.prepared
    room = max_positions(prepared.model_path, config.model)
    answer = max(config.sampling.max_tokens, prepared.evaluations.max_tokens)
    needed = prepared.longest_prompt + answer
    text = f"longest prompt {prepared.longest_prompt} + {answer} tokens = {needed} of {room}"
    if needed <= room:
        return Finding("prompt/context", "ok", text)
    return Finding(
        "prompt/context",
        "fail",
        f"{text}: the model was not made for that length",
        f"lower sampling.max_tokens (or the eval task's) to at most "
        f"{max(1, room - prepared.longest_prompt)}, or data.max_prompt_tokens",
    )


PROMPTS: tuple[Check[Subject], ...] = (
    ("prompt/bos", _bos),
    ("prompt/special", _inside),
    ("prompt/round_trip", _round_trip),
    ("prompt/context", _context),
)
