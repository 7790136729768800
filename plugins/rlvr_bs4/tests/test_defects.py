"""The defects found in the environment this one is measured against, by number: none is here."""

from __future__ import annotations

import json

import pytest
from bs4 import BeautifulSoup

from rlvr_bs4 import catalog, solvers
from rlvr_bs4.datasets import Pages, rows_of
from rlvr_bs4.generate import generate
from rlvr_bs4.grade import grade
from rlvr_bs4.modes import counts, weights
from rlvr_bs4.site import PARSERS, Site, resolve


def say(answer):
    return json.dumps({"status": "ok", "answer": answer})


def script_of(task):
    """The script that fills the element asked for; the other scripts belong to its twins."""
    id = catalog.get(task.archetype).slots(Site(task))["id"]
    scripts = BeautifulSoup(task.html, "html.parser").select("script")
    return next(tag.string for tag in scripts if f'"{id}"' in (tag.string or ""))


def test_b3_data_in_character_codes_makes_a_task_solvable():
    for id in ("mvp.limit_js_required", "mvp.limit_canvas_text"):
        coded = [
            task
            for task in (generate(id, seed, "bare") for seed in range(60))
            if "fromCharCode" in script_of(task)
        ]
        assert coded
        assert all(task.limit is None for task in coded)
        assert all(grade(task, say(task.answer)).correct for task in coded)


def test_b4_texts_that_look_like_numbers_stay_texts():
    seen = 0
    for seed in range(60):
        task = generate("mvp.link_chain", seed, "bare")
        if task.answer.replace(".", "").isdigit():
            seen += 1
            assert grade(task, say(task.answer)).correct
            assert not grade(task, say(float(task.answer))).correct
    assert seen > 5


@pytest.mark.parametrize(
    "id", ["mvp.extract_text_by_class", "mvp.none_attribute_error", "mvp.parser_differences"]
)
def test_b5_classes_do_not_collide(id):
    kind = catalog.get(id)
    for seed in range(12):
        task = generate(id, seed, "small")
        for parser in PARSERS:
            assert solvers.run(kind.solve, task, parser).correct


def test_b7_noise_never_lands_in_scripts_or_titles():
    for id in ("mvp.json_ld_extraction", "mvp.json_ld_array", "web.next_data"):
        for seed in range(4):
            soup = BeautifulSoup(generate(id, seed, "large").html, "html.parser")
            for script in soup.select('script[type*="json"]'):
                json.loads(script.string)
            assert "<!--" not in str(soup.title)


def test_b9_a_weight_of_zero_leaks_no_row_counts_are_exact_and_primers_differ_by_split():
    assert not [id for id in counts(weights("tiered"), 57_000) if id.startswith("primer.")]
    for n in (1, 99, 100, 1000):
        assert len(rows_of(Pages.Config(mode="tiered", n=n))) == n
    sets = [
        {
            (task.question, task.html)
            for row in rows_of(Pages.Config(mode="primer", split=split, n=60, size="bare"))
            for task in [generate(*row)]
        }
        for split in ("train", "eval")
    ]
    assert not sets[0] & sets[1]


def test_b11_difficulty_is_no_matter_of_size():
    hard = generate("mvp.extract_svg_geometry", 0, "bare")
    easy = generate("mvp.extract_text_by_id", 0, "large")
    assert len(hard.html) < 8_000 < 40_000 < len(easy.html)
    kept = rows_of(Pages.Config(exclude=["mvp.link_chain"], n=200))
    assert "mvp.link_chain" not in {row[0] for row in kept}


@pytest.mark.parametrize("href", ["\ud800", "/a\udfff", "?\ud800#x", "http://\ud800/"])
def test_half_of_a_surrogate_pair_leads_nowhere(href):
    start = "https://shop.example/"
    assert resolve(start, href, {start: "x", "https://shop.example/a": "y"}) is None
