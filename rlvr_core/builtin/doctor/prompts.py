"""Checks of the rendered prompts, token by token."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from rlvr_core.api.services import Renderer, max_positions
from rlvr_core.builtin.doctor.report import Answer, Check, at_first, share
from rlvr_core.builtin.doctor.subject import Subject, text_of


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


def _bos(subject: Subject) -> Answer:
    tokenizer = subject.tokenizer
    bos, eos, pad = tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id
    twice = [
        problem.id
        for problem, ids in subject.rendered
        if bos is not None and list(ids).count(bos) > 1 and ids[:2] == (bos, bos)
    ]
    if twice:
        return Answer(
            "fail",
            f"{share(len(twice), len(subject.rendered))} prompts begin with two "
            f"{tokenizer.bos_token}: {at_first(twice)}",
            "take the token out of the data, data.prompt.system or the chat template: the "
            "tokenizer adds it",
        )
    ended = [
        problem.id
        for problem, ids in subject.rendered
        if {eos, pad} & set(ids[-1:]) and not subject.prepared.renderer.as_chat(problem)
    ]
    if ended:
        return Answer(
            "fail",
            f"{share(len(ended), len(subject.rendered))} prompts end with an end-of-text or "
            f"padding token: {at_first(ended)}",
            "take it out of the data, data.prompt or the tokenizer's post-processor",
        )
    first = "none" if bos is None else repr(tokenizer.bos_token)
    with_bos = sum(ids[:1] == (bos,) for _, ids in subject.rendered)
    return Answer("ok", f"BOS token {first}, at the start of {with_bos} of {len(subject.rendered)}")


def _inside(subject: Subject) -> Answer | None:
    """Check for special tokens in the text of the problems."""
    tokenizer = subject.tokenizer
    names = {str(token) for token in tokenizer.all_special_tokens} | {
        str(token) for token in tokenizer.added_tokens_decoder.values() if token.special
    }
    names = {name for name in names if len(name) > 2}
    section = subject.config.data.prompt
    texts = {"data.prompt.system": section.system or "", "data.prompt.prefix": section.prefix or ""}
    texts |= {problem.id: text_of(problem) for problem in subject.sample}
    found = {
        where: [name for name in names if name in text]
        for where, text in texts.items()
        if any(name in text for name in names)
    }
    # a prefix may open a block of reasoning by a special token on purpose
    found.pop("data.prompt.prefix", None)
    if not found:
        return Answer("ok", f"none in {len(subject.sample)} prompts")
    where, tokens = next(iter(found.items()))
    return Answer(
        "fail",
        f"{share(len(found), len(texts))} texts hold special tokens as text, such as "
        f"{tokens[0]} in {where}",
        "take them out: the template and the tokenizer put special tokens where they belong",
    )


def _template(subject: Subject) -> Answer:
    prepared, section = subject.prepared, subject.config.data.prompt
    problem = subject.sample[0]
    chats = sum(not isinstance(one.prompt, str) for one in subject.sample)
    if section.chat_template == "auto" and not chats:
        return Answer("ok", prepared.renderer.describe())
    bare = copy.copy(subject.tokenizer)
    bare.init_kwargs = {}  # without the option that this run sets
    auto = Renderer(
        bare, section.model_copy(update={"chat_template": "auto"}), prepared.renderer.present
    )
    reason = auto.describe().partition(": ")[2]
    is_chat_model = auto.text_as_chat
    used = prepared.renderer.as_chat(prepared.renderer.present(problem))
    if (
        used
        and not is_chat_model
        and (chats == 0 or getattr(subject.tokenizer, "chat_template", False))
    ):
        return Answer(
            "warn" if chats else "fail",
            f"the chat template is used on what looks like a base model: {reason}",
            "set data.prompt.chat_template: never, or train an instruction-tuned model",
        )
    if not used and is_chat_model:
        return Answer(
            "fail",
            f"prompts are raw text, and this is a chat model: {reason}",
            "set data.prompt.chat_template: auto",
        )
    return Answer("ok", prepared.renderer.describe())


def _ends(subject: Subject) -> Answer:
    """Check that model, generation config and tokenizer agree on the end-of-sequence token."""
    from transformers import AutoConfig, GenerationConfig

    tokenizer, model = subject.tokenizer, subject.config.model
    options = {"revision": model.revision, "trust_remote_code": model.trust_remote_code}
    declared: dict[str, set[int]] = {"tokenizer": _ids(tokenizer.eos_token_id)}
    config = AutoConfig.from_pretrained(subject.prepared.model_path, **options)
    declared["config.json"] = _ids(getattr(config, "eos_token_id", None))
    try:
        generation = GenerationConfig.from_pretrained(
            subject.prepared.model_path, revision=model.revision or "main"
        )
        declared["generation_config.json"] = _ids(generation.eos_token_id)
    except OSError:
        pass
    known = {where: ids for where, ids in declared.items() if ids}
    every = set().union(*known.values()) if known else set()
    words = "; ".join(
        f"{where}: {', '.join(map(str, tokenizer.convert_ids_to_tokens(sorted(ids))))}"
        for where, ids in known.items()
    )
    if not every:
        return Answer(
            "fail",
            "no end-of-sequence token is known: no completion can end by itself",
            "set eos_token in the tokenizer, or sampling.stop",
        )
    odd = [id_ for id_ in every if id_ >= len(tokenizer) or id_ == tokenizer.pad_token_id]
    only_pad = odd and not every - set(odd)
    apart = [where for where, ids in known.items() if not ids & declared["tokenizer"]]
    if only_pad or (apart and declared["tokenizer"]):
        return Answer(
            "fail",
            f"they disagree on the end-of-sequence token: {words}",
            "make eos_token_id of config.json, generation_config.json and the tokenizer the token "
            "that the model was trained to end with",
        )
    return Answer("ok", words)


def _ids(value: Any) -> set[int]:
    if value is None:
        return set()
    return {int(one) for one in value} if isinstance(value, list | tuple) else {int(value)}


def _round_trip(subject: Subject) -> Answer:
    encode, decode = subject.prepared.renderer.encode, subject.tokenizer.decode
    unknown = subject.tokenizer.unk_token_id
    texts = [text_of(one) for one in subject.sample]
    texts += [one.response for one in subject.references if one.response]
    wrong, lost = [], 0
    for text in texts:
        ids = encode(text)
        lost += unknown is not None and unknown in ids
        if str(decode(list(ids))) != text:
            wrong.append(text)
    if lost:
        return Answer(
            "fail",
            f"{share(lost, len(texts))} texts hold characters that the tokenizer cannot write",
            "use the tokenizer that belongs to the model",
        )
    apart = [text for text in wrong if "".join(text.split()) != _bare(text, encode, decode)]
    if apart:
        return Answer(
            "warn",
            f"{share(len(apart), len(texts))} texts come back changed, such as {apart[0][:40]!r}",
            "check that the tokenizer belongs to the model, and turn its clean-up options off",
        )
    return Answer("ok", f"{share(len(texts) - len(wrong), len(texts))} texts come back unchanged")


def _bare(text: str, encode: Any, decode: Any) -> str:
    return "".join(str(decode(list(encode(text)))).split())


def _context(subject: Subject) -> Answer:
    config, prepared = subject.config, subject.prepared
    room = max_positions(prepared.model_path, config.model)
    answer = max(config.sampling.max_tokens, prepared.evaluations.max_tokens)
    needed = prepared.longest_prompt + answer
    value = f"longest prompt {prepared.longest_prompt} + {answer} tokens = {needed} of {room}"
    if needed > room:
        return Answer(
            "fail",
            f"{value}: the model was not made for that length",
            f"lower sampling.max_tokens (or the eval task's) to at most "
            f"{max(1, room - prepared.longest_prompt)}, or data.max_prompt_tokens",
            data={"needed": needed, "context": room},
        )
    return Answer("ok", value, data={"needed": needed, "context": room})


def _overlong(subject: Subject) -> Answer | None:
    limit = subject.config.data.max_prompt_tokens
    lengths = sorted(len(ids) for _, ids in subject.rendered)
    median = lengths[len(lengths) // 2]
    return Answer(
        "note", f"median {median}, longest {subject.prepared.longest_prompt}, cap {limit}"
    )


PROMPTS: tuple[Check[Subject], ...] = (
    Check("prompt/bos", "Does every prompt begin as the model expects?", _bos),
    Check("prompt/special", "Are special tokens only where the template puts them?", _inside),
    Check("prompt/template", "Does the rendering fit the model?", _template),
    Check("prompt/eos", "Do all files agree on the token that ends an answer?", _ends),
    Check("prompt/round_trip", "Does the tokenizer give texts back unchanged?", _round_trip),
    Check("prompt/context", "Do the longest prompt and answer fit the context?", _context),
    Check("prompt/length", "How long are prompts, in tokens?", _overlong),
)
