"""Properties of the world that hold for every archetype and seed; p02 is the second one asked for.

Each is asserted of a sample that changes with the package's sources; of all on demand.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
import subprocess
import sys
from collections import Counter
from urllib.parse import unquote

import pytest
from bs4 import BeautifulSoup
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_bs4 import catalog, solvers
from rlvr_bs4.chrome import DEAD
from rlvr_bs4.dom import serialize
from rlvr_bs4.generate import ORIGIN, SEEDS, draw, generate
from rlvr_bs4.schema import STRING, array, share
from rlvr_bs4.site import Site, resolve
from rlvr_bs4.sizes import SIZES
from rlvr_bs4.task import Par, canonical
from rlvr_bs4.web.judge import Scoring, efficiency
from rlvr_bs4.world import World, cents, stream

IDS = list(catalog.everything())
ABSTAINING = [id for id in IDS if catalog.get(id).abstains]
JOURNEYS = [id for id in IDS if catalog.get(id).build.__module__.endswith("journeys")]


def bodies(draft):
    return {draft.path: draft.body, **(draft.more or {})}


def truth(draft):
    return canonical([draft.answer, draft.limit and list(draft.limit.spans)])


# -- generators ------------------------------------------------------------------------------------

PROGRAM = """
import hashlib, json, sys
from rlvr_bs4.generate import generate
for row in json.load(sys.stdin):
    print(generate(*row).sha256)
print("lxml" in sys.modules, "bs4" in sys.modules)
"""


@pytest.mark.parametrize(
    "surroundings",
    [
        {"PYTHONHASHSEED": "77", "LC_ALL": "tr_TR.UTF-8", "TZ": "America/St_Johns",
         "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"},
        {"PYTHONHASHSEED": "0", "without": "lxml bs4 soupsieve"},
    ],
)  # fmt: skip
def test_p01_bytes_depend_on_nothing_around_the_process(drawn, tmp_path, surroundings):
    """Hash seed, locale, time zone, encodings, working directory, and which parsers there are."""
    ids = drawn.archetypes(20)
    sizes = list(SIZES)
    rows = [(id, drawn.seeds(1, 1, id)[0], sizes[i % len(sizes)]) for i, id in enumerate(ids)]
    around = dict(surroundings)
    hidden = around.pop("without", "").split()
    for name in hidden:  # found first, and not to be imported
        (tmp_path / f"{name}.py").write_text(f"raise ImportError('{name} is not here')")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(rows),
        env={**os.environ, **around, "PYTHONPATH": path},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    *found, imported = done.stdout.splitlines()
    assert found == [generate(*row).sha256 for row in rows]
    assert imported == "False False", "pages are made without any parser"


@pytest.mark.parametrize("size", SIZES)
def test_p07_content_is_in_the_finished_page_letter_by_letter(drawn, size):
    """Noise goes around it and touches no block of it."""
    for id in drawn.archetypes(20 if size != "large" else 6):
        seed = drawn.seeds(1, 1, id)[0]
        draft, _ = draw(catalog.get(id), seed)
        task = generate(id, seed, size)
        for path, body in bodies(draft).items():
            page = task.pages[ORIGIN + path]
            for block in (*body.main, *body.head):
                assert serialize(block) in page, (id, seed, size)


def test_p07_prices_of_the_furniture_do_no_harm():
    """They need no bounds: the list is named, and on some pages they lie beyond its ends."""
    kind, beyond = catalog.get("mvp.aggregation_min_max"), 0
    for seed in range(8):
        task = generate(kind.id, seed, "medium")
        page = BeautifulSoup(task.html, "html.parser").get_text(" ")
        prices = [cents(one) for one in re.findall(r"\$\d+\.\d\d", page)]
        beyond += cents(task.answer) not in (min(prices), max(prices))
        assert solvers.run(kind.solve, task, "html.parser").correct
    assert beyond


@pytest.mark.parametrize(("low", "high"), [(1, 99_999), (500, 503), (700, 700), (1, 1), (1, 3)])
def test_p07_prices_keep_their_bounds(low, high):
    """Wide, narrow, equal, and of a cent."""
    for seed in range(40):
        found = World(stream("price", seed), training=True).price(low, high)
        assert low <= cents(found) <= high


def plain(page):
    """A page, and all that reading it in another way gives."""
    found = [page, html.unescape(page), unquote(page), page[::-1]]
    found += re.findall(r"[\w+/=-]{8,}", page)
    codes = re.findall(r"(?:\d{1,6}\s*,\s*)+\d{1,6}", page)
    found += ["".join(chr(min(int(n), 0x10FFFF)) for n in re.findall(r"\d+", c)) for c in codes]
    for word in re.findall(r"[A-Za-z0-9+/_-]{8,}={0,2}", page):
        for start in range(4):
            part = word[start:].rstrip("=")
            part = part[: len(part) - (len(part) % 4 == 1)]
            raw = base64.b64decode(part.translate(str.maketrans("-_", "+/")) + "==")
            found.append(raw.decode("utf-8", "replace"))
        if re.fullmatch(r"(?:[0-9a-fA-F]{2})+", word):
            found.append(bytes.fromhex(word).decode("utf-8", "replace"))
    escaped = re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), page)
    hexed = re.sub(r"\\x([0-9a-fA-F]{2})", lambda m: chr(int(m[1], 16)), escaped)
    squeezed = re.sub(r"<!--.*?-->|</?\w[^>]*>|[\s.,;:_|+\"'-]", "", page)
    return "\n".join([*found, escaped, hexed, squeezed]).lower()


@pytest.mark.parametrize("id", ABSTAINING)
def test_p09_what_is_absent_is_in_no_reading_of_the_page(id, drawn):
    """The page is decoded in all ways; its twin shows that the way to find it works."""
    kind, found = catalog.get(id), 0
    for seed in drawn.seeds(12, 100, id):
        twins = [
            kind.make(World(stream("p09", id, seed), training=True), solvable=solvable)
            for solvable in (True, False)
        ]
        pages = ["".join(map(serialize, (*t.body.head, *t.body.main))) for t in twins]
        truth = str(twins[0].answer).lower()
        forms = {truth, re.sub(r"[\s.,;:_|+\"'-]", "", truth)}
        assert not any(form in plain(pages[1]) for form in forms), (id, seed)
        found += any(form in plain(pages[0]) for form in forms)
    assert found, "in the solvable twin it can be found"


@pytest.mark.parametrize("id", JOURNEYS)
def test_p10_journeys_lead_to_the_answer_and_only_at_their_end(id, drawn):
    kind = catalog.get(id)
    for seed in drawn.seeds(4, 60, id):
        task = generate(id, seed, "small" if seed % 2 else "bare")
        assert len(task.pages) > 1
        links = {}
        for url, page in task.pages.items():
            soup = BeautifulSoup(page, "html.parser")
            hrefs = [a["href"] for a in soup.select("a[href]") if not a["href"].startswith(DEAD)]
            links[url] = [resolve(url, href, task.pages) for href in hrefs]
            assert None not in links[url], (id, seed, url)
            names = [" ".join(a.get_text().split()) for a in soup.select(".links a")]
            assert len(set(names)) == len(names), (id, seed, url)
        reached, waiting = {task.start}, [task.start]
        while waiting:
            new = set(links[waiting.pop()]) - reached
            reached |= new
            waiting += new
        assert reached == set(task.pages), "every page is to be come to by links"
        site = Site(task)
        assert kind.solve(site) == task.answer
        *before, last = dict.fromkeys(site.visited)
        said = task.answer if isinstance(task.answer, str) else None
        for url in before if said else ():
            page = BeautifulSoup(task.pages[url], "html.parser").get_text(" ")
            # as a word: 1.9 is not said by 471.98
            assert not re.search(rf"(?<![\w.]){re.escape(said)}(?![\w.])", page), (id, seed, url)
        assert not said or id == "mvp.compare_products" or said in task.pages[last]


# -- data sets -------------------------------------------------------------------------------------


def test_p15_no_question_with_its_answer_is_in_two_splits(drawn):
    for id in drawn.archetypes(6):
        kind, asked = catalog.get(id), {}
        for split, n in (("train", 40), ("eval", 20), ("bench", 20)):
            for seed in drawn.seeds(n, 4 * n, id, SEEDS[split]):
                draft, _ = draw(kind, seed)
                held = draft.answer if draft.limit is None else list(draft.limit.spans)
                pair = canonical([draft.question.slots, held])
                assert asked.setdefault(pair, split) == split, (id, seed)
                # nor could it be with other seeds: its hash belongs to one split
                mine = stream("bucket", id, pair).randrange(10)
                assert split == ("train" if mine < 8 else ("eval", "bench")[mine - 8]), (id, seed)


# -- grading ---------------------------------------------------------------------------------------

EFFICIENCY = [
    # calls, as they cost; what is taken for 1 program, and for 3 programs and 2 moves
    (0, 1.0, 1.0), (1, 1.0, 1.0), (1.2, 0.98, 1.0), (2, 0.9, 1.0), (3, 0.8, 1.0), (3.4, 0.76, 1.0),
    (3.6, 0.74, 0.98), (4, 0.7, 0.94), (5, 0.6, 0.84), (6, 0.5, 0.74), (7, 0.4, 0.64),
    (8, 0.3, 0.54), (9, 0.2, 0.44), (10, 0.2, 0.34), (11, 0.2, 0.24), (12, 0.2, 0.2),
    (999_999, 0.2, 0.2),
]  # fmt: skip


@pytest.mark.parametrize(("spent", "single", "journey"), EFFICIENCY)
def test_p16_efficiency_by_hand(spent, single, journey):
    assert efficiency(spent, Par(), Scoring()) == pytest.approx(single)
    assert efficiency(spent, Par(3, 2), Scoring()) == pytest.approx(journey)
    assert efficiency(spent, Par(), Scoring(call_cost=0.0)) == 1.0
    assert efficiency(spent, Par(), Scoring(least=1.0)) == 1.0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from("abcdef"), max_size=8), st.lists(st.sampled_from("abcxyz"), max_size=8)
)
def test_p19_more_that_is_right_is_never_worth_less(truth, said):
    for ordered in (True, False):
        form = array(STRING, ordered=ordered)
        before = share(form, truth, said)
        missing = Counter(truth) - Counter(said)
        if missing and before < 1.0:
            assert share(form, truth, [*said, next(iter(missing))]) >= before
        assert (share(form, truth, truth[::-1]) == 1.0) == (not ordered or truth == truth[::-1])
        wrong = share(form, truth, [*said, "none of them"])
        assert wrong <= max(before, 0.99)
        assert wrong < 1.0
