"""From an archetype and a seed to a finished task: content, furniture, gate.

Content is drawn from a stream of archetype and seed alone, furniture from one that has the size in
it as well, so that question and truth are the same at every size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from random import Random
from typing import Literal, get_args

from rlvr_bs4 import catalog
from rlvr_bs4.archetype import Archetype, Body, Draft
from rlvr_bs4.chrome import Chrome
from rlvr_bs4.dom import Element, depth, document, elements, matches
from rlvr_bs4.schema import canon
from rlvr_bs4.sizes import INNER, SIZES, Size
from rlvr_bs4.task import REASONS, SizeName, Task, canonical
from rlvr_bs4.world import World, stream
from rlvr_core.api import DataError

Split = Literal["train", "eval", "bench"]
SPLITS: tuple[Split, ...] = get_args(Split)
SEEDS: Mapping[Split, range] = {
    "train": range(0, 100_000),
    "eval": range(100_000, 110_000),
    "bench": range(110_000, 111_000),
}
_BUCKETS: Mapping[Split, range] = {"train": range(0, 8), "eval": range(8, 9), "bench": range(9, 10)}
ORIGIN = "https://site.example"
_TRIES = 400
_CONTENT = replace(SIZES["bare"], most=6_500, elements=200)
"""Largest content with its twins: it must fit into a page of each size."""


def split_of(seed: int) -> Split:
    """The split a seed belongs to.

    Raises:
        DataError: If it belongs to none.
    """
    for split, seeds in SEEDS.items():
        if seed in seeds:
            return split
    raise DataError(f"seed {seed} is outside 0..110999", remedy="train 0..99999, eval, bench above")


@lru_cache(maxsize=64)
def generate(archetype: str, seed: int, size: SizeName = "small") -> Task:
    """Make one task; the same arguments give the same bytes everywhere.

    Raises:
        DataError: If there is no such archetype, seed or size.
    """
    kind = catalog.get(archetype)
    if size not in SIZES:
        raise DataError(f"there is no size {size!r}", remedy=f"one of: {', '.join(SIZES)}")
    draft, attempt = draw(kind, seed)
    for again in range(_TRIES):
        rng = stream("furniture", kind.id, seed, attempt, size, again)
        task = _furnish(kind, seed, draft, SIZES[size], rng)
        if task is not None:
            return task
    raise RuntimeError(f"{kind.id} seed {seed} size {size}: no page passes the gate")


def draw(kind: Archetype, seed: int) -> tuple[Draft, int]:
    """The content of a task, and which attempt gave it.

    What is asked together with its answer falls into the bucket of one split by its hash: no such
    pair is in two splits.
    """
    split = split_of(seed)
    for attempt in range(_TRIES):
        w = World(stream("content", kind.id, seed, attempt), training=split == "train")
        draft = _among_twins(kind, w, kind.build(w))
        if _bucket(kind, draft) in _BUCKETS[split] and _passes(draft):
            _check(kind, draft)
            return draft, attempt
    raise RuntimeError(f"{kind.id} seed {seed}: no content passes the gate")


def _among_twins(kind: Archetype, w: World, draft: Draft) -> Draft:
    """The draft with the content of its twins around it, as many of them as a bare page holds.

    Without them a selector that ignores the question, such as the last element with an id, is right
    wherever the content has a fixed shape.
    """
    bodies, canaries = [draft.body], draft.canaries
    for _ in range(kind.twins):
        twin = kind.build(w)
        nodes = [node for body in (*bodies, twin.body) for node in body.main]
        root = Element("body", {}, nodes)
        if len(document(root).encode()) > _CONTENT.most or _count(root) > _CONTENT.elements:
            break
        bodies.append(twin.body)
        canaries += twin.canaries
    order = w.shuffled(bodies)
    body = replace(
        draft.body,
        main=tuple(node for body in order for node in body.main),
        claims=tuple(claim for body in bodies for claim in body.claims),
    )
    return replace(draft, body=body, canaries=canaries)


def _count(root: Element) -> int:
    return sum(1 for _ in elements(root))


def _bucket(kind: Archetype, draft: Draft) -> int:
    truth = draft.answer if draft.limit is None else list(draft.limit.spans)
    return stream("bucket", kind.id, canonical([draft.question.slots, truth])).randrange(10)


def _passes(draft: Draft) -> bool:
    """Whether the claims hold on the content alone."""
    bodies = [draft.body, *(draft.more or {}).values()]
    return all(_holds(body, Element("body", {}, [*body.head, *body.main])) for body in bodies)


def _check(kind: Archetype, draft: Draft) -> None:
    """Refuse a draft that contradicts itself: a bug of the archetype."""
    truth = canonical(draft.answer)
    assert draft.limit is None or draft.limit.reason in REASONS, draft.limit
    assert (draft.limit is None) == (canon(kind.schema, draft.answer) is not None), (kind.id, truth)
    assert not any(secret in truth for secret in draft.canaries), kind.id


def _furnish(kind: Archetype, seed: int, draft: Draft, size: Size, rng: Random) -> Task | None:
    """The task with finished pages; None if one does not pass the gate."""
    chrome = Chrome(rng)
    pages: dict[str, str] = {}
    for path, body in {draft.path: draft.body, **(draft.more or {})}.items():
        allowed = size if path == draft.path or size.name == "bare" else INNER
        root = chrome.page(body, allowed)
        html = document(root)
        if not (_holds(body, root) and _fits(root, html, allowed)):
            return None
        pages[ORIGIN + path] = html
    return Task(
        archetype=kind.id,
        seed=seed,
        size=size.name,
        question=draft.question.text,
        schema=kind.schema,
        answer=draft.answer,
        limit=draft.limit,
        pages=pages,
        start=ORIGIN + draft.path,
        canaries=(*draft.canaries, *chrome.canaries),
        par=draft.par,
    )


def _fits(root: Element, html: str, size: Size) -> bool:
    """Whether a finished page keeps its budget."""
    few = sum(1 for _ in elements(root)) <= size.elements
    return few and depth(root) <= size.depth and len(html.encode()) <= size.most


def _holds(body: Body, root: Element) -> bool:
    all_elements = list(elements(root))
    return all(sum(matches(element, c.css) for element in all_elements) == c.n for c in body.claims)
