"""Checks of how completions end, and of their text: truncation, stop strings, loops, lengths."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlvr_core.builtin.doctor.report import Answer, Check, Level, share

if TYPE_CHECKING:
    from rlvr_core.builtin.doctor.batch import Batch

MANY_CUT = 0.1
"""Share of completions at the token cap above which there is a warning."""


def _ending(batch: Batch) -> Answer:
    """Judge how completions end, and whether a higher token cap changes that."""
    members = batch.members
    cut = sum(member.completion.finish_reason == "length" for member in members)
    config = batch.subject.config
    eos = config_end_ids(batch)
    by_eos = sum(bool(set(member.completion.token_ids[-1:]) & eos) for member in members)
    value = (
        f"{share(by_eos, len(members))} completions end by an end-of-sequence token, "
        f"{len(members) - by_eos - cut} by a stop string, {cut} at the limit"
    )
    data = {"eos": by_eos, "truncated": cut, "n": len(members)}
    over = batch.passed_over.most_common(1)
    if over and over[0][1] > 0.2 * len(members) and cut > 0.2 * len(members):
        return Answer(
            "fail",
            f"{value}; {share(over[0][1], len(members))} write {over[0][0]} and go on",
            f"make {over[0][0]} the eos_token_id of config.json, generation_config.json and the "
            "tokenizer",
            weight=129,
            data=data,
        )
    if cut <= MANY_CUT * len(members):
        return Answer("ok", value, data=data)
    longer = batch.longer
    still = sum(one.finish_reason == "length" for one in longer)
    room = max((len(one.token_ids) for one in longer), default=0)
    ended = [len(one.token_ids) for one in longer if one.finish_reason == "stop"]
    level: Level = "fail" if cut > 0.5 * len(members) else "warn"
    if longer and len(ended) >= len(longer) / 3:
        need = sorted(ended)[int(0.9 * (len(ended) - 1))]
        return Answer(
            level,
            f"{value}; with more room {share(len(ended), len(longer))} of those cut off end",
            _more_room(config.sampling.max_tokens, need, config.sampling.temperature),
            weight=105,
            data=data,
        )
    if longer and by_eos == 0:
        return Answer(
            "fail",
            f"{value}; {share(still, len(longer))} go on even to {room} tokens",
            "the model never writes a token that ends an answer: correct eos_token_id, or set "
            "sampling.stop",
            weight=128,
            data=data,
        )
    more = f"; {share(still, len(longer))} of those cut off go on to {room} tokens"
    return Answer(
        level,
        value + (more if longer else ""),
        "raise sampling.max_tokens, set sampling.stop, or use train.mask_truncated",
        data=data,
    )


def _more_room(cap: int, need: int, temperature: float) -> str:
    """Return what to do about completions that are cut off, though some end elsewhere.

    Args:
        cap: The token cap.
        need: Tokens that nine of ten completions with more room needed.
        temperature: The sampling temperature.
    """
    if need > cap:
        return f"raise sampling.max_tokens from {cap} to about {need}"
    # the same problems, asked again, end before the cap: where they end is chance
    if temperature > 1:
        return (
            f"lower sampling.temperature from {temperature:g} (1.0 is usual): answers that end do "
            f"so within {need} tokens, the others wander; more room would not end them"
        )
    return (
        f"answers that end do so within {need} tokens, so more room would not end the others: look "
        "at some, and check the chat template and the tokens that end an answer (prompt/ above)"
    )


def config_end_ids(batch: Batch) -> set[int]:
    """Return every token that ends a completion."""
    renderer, ids = batch.subject.prepared.renderer, set()
    tokenizer: Any = batch.subject.tokenizer
    for member in batch.members:
        if member.completion.finish_reason == "stop" and member.completion.token_ids:
            last = member.completion.token_ids[-1]
            if renderer.is_end(last):
                ids.add(last)
    return ids | ({tokenizer.eos_token_id} if tokenizer.eos_token_id is not None else set())


def _stops(batch: Batch) -> Answer | None:
    """Check whether stop strings end completions before the answer."""
    stops = {s for g in batch.groups for s in g.problem.stop} | set(
        batch.subject.config.sampling.stop
    )
    if not stops:
        return None
    references = [one for one in batch.subject.references if one.response]
    inside = [one for one in references if any(s in one.response.rstrip()[:-1] for s in stops)]
    ended = [
        m.completion
        for m in batch.members
        if m.completion.finish_reason == "stop" and any(s in m.completion.text for s in stops)
    ]
    short = [one for one in ended if len(one.token_ids) <= 3]
    value = f"{share(len(ended), len(batch.members))} completions end by a stop string"
    if references and len(inside) > 0.2 * len(references):
        return Answer(
            "fail",
            f"{value}; it also stands in {share(len(inside), len(references))} references",
            "take it out of sampling.stop: it cuts answers off",
            weight=127,
        )
    if len(short) > 0.3 * len(batch.members):
        return Answer(
            "fail",
            f"{value}, {len(short)} of them within three tokens",
            "take the stop string out of sampling.stop: it cuts answers off",
            weight=127,
        )
    return Answer("ok", value)


def _markers(batch: Batch) -> Answer | None:
    """Check whether completions continue with a new prompt."""
    texts = [ids for _, ids in batch.subject.rendered[:64]]
    decode = batch.subject.tokenizer.decode
    heads = Counter(str(decode(list(ids), skip_special_tokens=True)).strip()[:12] for ids in texts)
    frames = [head for head, n in heads.items() if n > 0.5 * len(texts) and len(head) >= 6]
    roles = ["<|im_start|>", "<|start_header_id|>", "\nUser:", "\nHuman:", "\nQuestion:", "[INST]"]
    marks = [*frames, *roles]
    found = [m.completion.text for m in batch.members if any(k in m.completion.text for k in marks)]
    value = f"{share(len(found), len(batch.members))} completions begin another prompt"
    if batch.judged_enough and len(found) > 0.1 * len(batch.members):
        mark = next(k for k in marks if k in found[0])
        return Answer(
            "warn",
            f"{value} ({mark.strip()!r})",
            f"set sampling.stop: [{mark!r}]",
            weight=70,
        )
    return Answer("ok", value)


def _repeats(batch: Batch) -> Answer | None:
    n = sum(len(group.members) for group in batch.groups)
    distinct = sum(len({m.completion.token_ids for m in g.members}) for g in batch.groups)
    value = f"{share(distinct, n)} completions differ from the others of their group"
    one_only = [g for g in batch.groups if len({m.completion.token_ids for m in g.members}) == 1]
    if batch.judged_enough and len(one_only) > 0.8 * len(batch.groups):
        return Answer(
            "fail",
            f"{value}: most groups are one answer repeated",
            f"raise sampling.temperature from {batch.subject.config.sampling.temperature:g} "
            "(1.0 is usual), or check the seeds of the engine",
            weight=110,
        )
    if batch.judged_enough and distinct < 0.35 * n:
        return Answer("warn", value, "raise sampling.temperature (1.0 is usual)")
    return Answer("ok", value)


def _degenerate(batch: Batch) -> Answer:
    looping = [m for m in batch.members if loops(m.completion.text)]
    empty = [m for m in batch.members if not m.completion.text.strip()]
    value = (
        f"{share(len(looping), len(batch.members))} completions repeat themselves, "
        f"{len(empty)} are empty"
    )
    bad = len(looping) + len(empty)
    if batch.judged_enough and bad > 0.3 * len(batch.members):
        return Answer(
            "warn" if bad < 0.8 * len(batch.members) else "fail",
            value,
            "look at the sampled answers: the prompt may not fit the model, or the end of an "
            "answer is not recognised",
            weight=75,
        )
    return Answer("ok", value)


def _noise(batch: Batch) -> Answer | None:
    """Check whether tokens are nearly uniform over the whole vocabulary."""
    if not batch.surprise:
        return None
    most = math.log(max(2, len(batch.subject.tokenizer)))
    value = f"{batch.surprise:.2g} nats of surprise a token; {most:.2g} are chance"
    temperature = batch.subject.config.sampling.temperature
    if batch.judged_enough and batch.noisy:
        return Answer(
            "fail",
            f"{value}: the text is little but noise",
            f"lower sampling.temperature from {temperature:g} (1.0 is usual)"
            if temperature > 1
            else "check that model.path holds trained weights, and the tokenizer they were trained "
            "with",
            weight=131,
        )
    return Answer("ok", value)


def loops(text: str) -> bool:
    """Return whether the second half of a text is mostly repetition.

    That is, if it compresses to less than an eighth of its length, which prose and working do not.
    """
    tail = text[len(text) // 2 :].encode()
    return len(tail) >= 100 and len(zlib.compress(tail, 9)) < len(tail) / 8


def histogram(lengths: Sequence[int], bins: int = 8, width: int = 40) -> str:
    """Return a histogram of lengths as text, one line per bin."""
    top = max(lengths, default=0) + 1
    step = max(1, -(-top // bins))
    counts = Counter(length // step for length in lengths)
    most = max(counts.values(), default=1)
    return "\n".join(
        f"{at * step:>6} to {at * step + step - 1:<6} {counts[at]:>5} "
        + "#" * round(width * counts[at] / most)
        for at in range(-(-top // step))
    )


def _lengths(batch: Batch) -> Answer:
    lengths = sorted(len(member.completion.token_ids) for member in batch.members)
    return Answer(
        "note",
        f"{lengths[0]} to {lengths[-1]} tokens, median {lengths[len(lengths) // 2]}, cap "
        f"{batch.subject.config.sampling.max_tokens}",
        data={"lengths": lengths},
    )


ENDINGS: tuple[Check[Batch], ...] = (
    Check("batch/ending", "Do completions end by themselves?", _ending),
    Check("batch/stops", "Do stop strings leave answers whole?", _stops),
    Check("batch/markers", "Do completions stop before a next prompt?", _markers),
    Check("batch/repeats", "Do completions of a group differ?", _repeats),
    Check("batch/degenerate", "Is the text free of loops and blanks?", _degenerate),
    Check("batch/noise", "Is the text more than chance?", _noise),
    Check("batch/lengths", "How long are completions, in tokens?", _lengths),
)
