"""Second set, written later and without reading the guards: data and tokens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from chaos.registry import TRANSFORMERS, Patch, declare, later

Rows = list[dict[str, Any]]
COLLECT = "rlvr_core.rollout.collect"
RENDERER = "rlvr_core.data.prompts:Renderer"
ENGINE = "rlvr_core.engines.transformers"


# -- data ----------------------------------------------------------------------------------------


def _shifted_from_the_middle(rows: Rows) -> Rows:
    answers = [row["answer"] for row in rows]
    half = len(rows) // 2
    shifted = answers[:half] + answers[half + 1 :] + answers[:1]
    return [row | {"answer": answer} for row, answer in zip(rows, shifted, strict=True)]


def _wrong_where_it_carries(rows: Rows) -> Rows:
    return [
        row | {"answer": str(int(row["answer"]) - 10)} if row["answer"].endswith("0") else row
        for row in rows
    ]


def _fullwidth(rows: Rows) -> Rows:
    wide = str.maketrans("0123456789", "０１２３４５６７８９")  # noqa: RUF001
    return [row | {"question": row["question"].translate(wide)} for row in rows]


declare("data", "gold-shifted-from-the-middle",
        "From the middle of the file on, each problem has the answer of the row below.",
        "answers?", set=2, data=_shifted_from_the_middle)  # fmt: skip
declare("data", "gold-digits-reversed", "The digits of every answer are reversed.",
        "answers?", set=2,
        data=lambda rows: [row | {"answer": row["answer"][::-1]} for row in rows])  # fmt: skip
declare("data", "gold-wrong-where-it-carries",
        "One kind of problem, one in ten, has an answer that is 10 too small.",
        "answers?", set=2, data=_wrong_where_it_carries)  # fmt: skip
declare("data", "gold-written-as-a-decimal", "Answers are written as 46.0, as tables have them.",
        "answers?", "int", set=2,
        data=lambda rows: [row | {"answer": row["answer"] + ".0"} for row in rows])  # fmt: skip
declare("data", "digits-of-another-width", "The digits of prompts are full-width characters.",
        set=2, data=_fullwidth)  # fmt: skip


@later("data", "problem", "epoch", "duplicate", "shuffl")
def one_shard_of_four_is_read(patch: Patch) -> None:
    """The data are sharded as if there were four processes: three quarters are never drawn."""

    def make(original: Any) -> Any:
        def begin(pool: Any, problems: Any, *more: Any) -> None:
            original(pool, problems[::4], *more)

        return begin

    patch.wrap("rlvr_core.builtin.samplers.epochs:Pool.__init__", make)


@later("data", "order", "shuffl")
def shuffle_forgotten(patch: Patch) -> None:
    """The data come in the order of the file, though they are to be shuffled."""
    place = "rlvr_core.builtin.samplers.epochs:Pool._order"
    patch.wrap(place, lambda _: lambda pool, epoch: pool._ids)


@later("data", "group", "completions", r"sampling\.n")
def groups_of_half_the_size(patch: Patch) -> None:
    """Groups have four completions in the place of eight."""

    def after(draws: Any, *_: Any) -> Any:
        return [replace(draw, n=draw.n // 2) for draw in draws]

    patch.after("rlvr_core.api:SamplerBase.draw", after)


@later("data", "stale", "replay", r"\bread", "old", shape="groups read twice")
def old_groups_read_for_ever(patch: Patch) -> None:
    """Reads of a group are not counted: the first groups are trained on again at every step."""

    def make(original: Any) -> Any:
        def take(buffer: Any, most: int, unread: Any = ()) -> Any:
            return original(buffer, most, range(most))

        return take

    patch.wrap("rlvr_core.builtin.replay.buffer:ReplayBuffer.take", make)


# -- tokens --------------------------------------------------------------------------------------


@later("tokens", "prompt", "length")
def prompts_cut_from_the_left(patch: Patch) -> None:
    """Prompts keep their last eight tokens, and lose half of the number."""
    patch.after(f"{RENDERER}.render", lambda ids, *_: ids[-8:])


@later("tokens", "prompt", "case")
def prompts_in_lower_case(patch: Patch) -> None:
    """Prompts are put into lower case before they become tokens."""

    def make(original: Any) -> Any:
        return lambda renderer, text: original(renderer, text.lower())

    patch.wrap(f"{RENDERER}.encode", make)


declare("tokens", "prompt-ends-in-a-space", "Every prompt ends in a space, which the model sets "
        "itself.", "prompt", "space", set=2,
        data=lambda rows: [row | {"question": row["question"] + " "} for row in rows])  # fmt: skip


@later("tokens", "text", "decod", "gold", "verifier", backends=TRANSFORMERS)
def text_decoded_token_by_token(patch: Patch) -> None:
    """Tokens are decoded one by one and joined by spaces."""

    def make(original: Any) -> Any:
        return lambda stops, ids: " ".join(original(stops, [token]) for token in ids)

    patch.wrap("rlvr_core.engines.sampling:StopStrings.text", make)


@later("tokens", "text", "decod", "gold", "verifier")
def text_loses_its_last_character(patch: Patch) -> None:
    """The text of a completion lacks its last character."""

    def make(original: Any) -> Any:
        return lambda stops, ids: original(stops, ids)[:-1]

    patch.wrap("rlvr_core.engines.sampling:StopStrings.text", make)


@later("tokens", "conserv", "mask")
def eos_cut_off_before_training(patch: Patch) -> None:
    """The token that ends a completion is taken off before it is trained on."""

    def after(found: Any, *_: Any) -> Any:
        if found.finish_reason != "stop":
            return found
        return replace(
            found,
            token_ids=found.token_ids[:-1],
            logprobs=found.logprobs[:-1],
            loss_mask=found.loss_mask[:-1],
        )

    patch.after(f"{COLLECT}:_completion", after)


@later("tokens")
def sampling_goes_on_after_the_end(patch: Patch) -> None:
    """A completion ends two tokens after its end-of-sequence token."""

    def make(original: Any) -> Any:
        def reached(ends: Any, token_K: Any, open_K: Any, alive_K: Any, token_TB: Any) -> Any:
            if len(token_TB) < 3:
                return open_K & False
            return original(ends, token_TB[-3, alive_K], open_K, alive_K, token_TB)

        return reached

    patch.wrap("rlvr_core.engines.decode:_Ends.reached", make)


@later("tokens", "length", "max_tokens", "truncat")
def cap_counts_the_prompt(patch: Patch) -> None:
    """The cap on a completion counts the prompt's tokens, too."""

    def make(original: Any) -> Any:
        return lambda engine, request: max(1, original(engine, request) - len(request.prompt_ids))

    patch.wrap(f"{ENGINE}:TransformersEngine._limit", make)


@later("tokens", "truncat", "finish", "length", shape="masked truncation")
def truncated_said_to_have_stopped(patch: Patch) -> None:
    """Completions that were cut off say that they have stopped, so that none is masked."""
    patch.after(f"{COLLECT}:_completion", lambda found, *_: replace(found, finish_reason="stop"))
