"""Third set, written without reading the guards: data, tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from chaos.registry import TRANSFORMERS, Patch, declare, third
from chaos.when import ENGINE, clock

Rows = list[dict[str, Any]]
COLLECT = "rlvr_core.rollout.collect"
SOURCES = "two data sets"

# -- data ----------------------------------------------------------------------------------------


def _source(patch: Patch, change: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> None:
    """Change the problems of one of the two data sets when they are loaded."""

    def after(sources: Any, *_: Any) -> Any:
        return [
            replace(source, problems=change(source.problems))
            if source.problems[0].dataset == "other"
            else source
            for source in sources
        ]

    patch.after("rlvr_core.run.prepare:load_sources", after)


@third("data", "answers?", shape=SOURCES)
def gold_of_one_source_shifted(patch: Patch) -> None:
    """Each problem of one of the two data sets has the reference answer of the next one."""

    def change(problems: Any) -> Any:
        specs = [problem.spec for problem in problems]
        return tuple(
            replace(problem, spec=spec)
            for problem, spec in zip(problems, specs[1:] + specs[:1], strict=True)
        )

    _source(patch, change)


@third("data", "question", shape=SOURCES)
def prompts_of_one_source_all_alike(patch: Patch) -> None:
    """The prompts of one of the two data sets have lost the number that is asked for."""
    _source(patch, lambda ps: tuple(replace(one, prompt="After comes:") for one in ps))


@third("data", "source", "weight", "mixture", "share", shape=SOURCES)
def second_source_dries_up(patch: Patch) -> None:
    """From the third step on, nothing is drawn from the second of two data sets."""
    drawn = [0]

    def make(original: Any) -> Any:
        def turn(turns: Any, can: Any) -> int:
            drawn[0] += 1
            chosen: int = original(turns, can)
            return 0 if drawn[0] > 24 else chosen

        return turn

    patch.wrap("rlvr_core.builtin.samplers.epochs:Turns.next", make)


@third("data", "group", "twice", "refill", "repeat", shape="pairs")
def refilled_groups_repeat_the_first(patch: Patch) -> None:
    """What is drawn in the place of dropped groups is the problems that the step had first."""
    first: list[Any] = []
    at = [-1]

    def make(original: Any) -> Any:
        def draw(sampler: Any, n_problems: int, *, step: int) -> Any:
            draws = original(sampler, n_problems, step=step)
            if step != at[0]:
                at[0], first[:] = step, [one.problem for one in draws]
                return draws
            return [
                replace(one, problem=first[place % len(first)]) for place, one in enumerate(draws)
            ]

        return draw

    patch.wrap("rlvr_core.api:SamplerBase.draw", make)


def _digits_swapped(rows: Rows) -> Rows:
    def swapped(row: dict[str, Any]) -> dict[str, Any]:
        digits = "".join(filter(str.isdigit, row["question"]))
        return row | {"question": row["question"].replace(digits, digits[::-1])}

    return [swapped(row) if place % 3 == 0 else row for place, row in enumerate(rows)]


declare("data", "prompt-digits-swapped-in-every-third", "In every third prompt the digits of the "
        "number are the wrong way round.", "question", "answers?", set=3,
        data=_digits_swapped)  # fmt: skip
declare("data", "answers-shown-in-prompts", "Every prompt begins with its own answer.",
        "answers?", "leak", set=3,
        data=lambda rows: [
            row | {"question": f"{row['answer']}. {row['question']}"} for row in rows
        ])  # fmt: skip
declare("data", "half-of-the-rows-are-one-problem", "Every second row is the same problem, under "
        "an id of its own.", "same problem", "repeat", set=3,
        data=lambda rows: [
            row if place % 2 else rows[0] | {"id": row["id"]} for place, row in enumerate(rows)
        ])  # fmt: skip


# -- tokens --------------------------------------------------------------------------------------


def _completions(patch: Patch, change: Callable[[Any], Any]) -> None:
    patch.after(f"{COLLECT}:_completion", lambda found, *_: change(found))


def _only(found: Any, some: slice, **more: Any) -> Any:
    """A completion with some of its tokens."""
    return replace(
        found,
        token_ids=found.token_ids[some],
        logprobs=found.logprobs[some],
        loss_mask=found.loss_mask[some],
        token_versions=found.token_versions[some],
        **more,
    )


@third("tokens", "prompt")
def prompts_lose_their_last_token(patch: Patch) -> None:
    """Every prompt lacks its last token, in the trainer as in the engine."""
    patch.after("rlvr_core.data.prompts:Renderer.render", lambda ids, *_: ids[:-1])


@third("tokens", "text", "reward", "gold", "verifier", shape="stop string")
def text_ends_before_its_stop_string(patch: Patch) -> None:
    """Verifiers get the text up to the stop string, which the answer needs; tokens keep it."""
    _completions(patch, lambda found: replace(found, text=found.text.split("]")[0]))


@third("tokens", "length", "max_tokens", "truncat", backends=TRANSFORMERS)
def cap_halved_from_the_third_version(patch: Patch) -> None:
    """From the third version on, completions have half of the tokens they may have."""
    now = clock()
    patch.after(
        f"{ENGINE}:TransformersEngine._limit",
        lambda limit, *_: max(1, limit // 3) if now.version >= 3 else limit,
    )


@third("tokens", r"\bend", "finish")
def stop_string_left_over(patch: Patch) -> None:
    """Completions end at a bracket, which nobody configured as a stop string."""

    def after(request: Any, *_: Any) -> Any:
        stop = (*request.params.stop, "]")
        return replace(request, params=replace(request.params, stop=stop))

    patch.after(f"{COLLECT}:Generator._request", after)


@third("tokens", "conserv", "first token", "mask")
def first_token_dropped_before_training(patch: Patch) -> None:
    """The first token of a completion is taken off before it is trained on."""
    _completions(
        patch, lambda found: _only(found, slice(1, None)) if len(found.token_ids) > 1 else found
    )


@third("tokens", "conserv", "length", "mask", "text")
def long_completions_cut_before_training(patch: Patch) -> None:
    """Of a completion of more than ten tokens ten are trained on; its text is judged whole."""
    _completions(patch, lambda found: _only(found, slice(0, 10)))


@third("tokens", "conserv", "mask", "twice")
def end_of_sequence_twice(patch: Patch) -> None:
    """The token that ends a completion is there twice when it is trained on."""

    def change(found: Any) -> Any:
        if found.finish_reason != "stop":
            return found
        return replace(
            found,
            token_ids=(*found.token_ids, found.token_ids[-1]),
            logprobs=(*found.logprobs, -1e-4),
            loss_mask=(*found.loss_mask, True),
        )

    _completions(patch, change)


@third("tokens", "prompt", "prefix", shape="prefix and very short completions")
def prefix_given_twice(patch: Patch) -> None:
    """The beginning of the answer that the config gives is put behind each prompt twice."""

    def after(framed: Any, *_: Any) -> Any:
        system, turns, prefix = framed
        return system, turns, prefix and prefix * 2

    patch.after("rlvr_core.data.prompts:framed", after)
