"""Every archetype: solvable by its reference, a trap for its bugs, sound on its finished pages."""

from __future__ import annotations

import json
import os

import pytest
from bs4 import BeautifulSoup

from rlvr_bs4 import catalog, solvers
from rlvr_bs4.ask import Ask
from rlvr_bs4.generate import ORIGIN, draw, generate
from rlvr_bs4.schema import canon
from rlvr_bs4.site import PARSERS, Site
from rlvr_bs4.sizes import INNER, SIZES

IDS = list(catalog.everything())
OF_THE_REFERENCE = 57
NEW = {
    "breadcrumbs", "captcha", "closest_ancestor", "data_testid", "document_order",
    "encoding_lost", "entities", "microdata", "mojibake", "next_data", "opengraph",
    "pagination_trap", "previous_sibling", "spa_shell", "table_spans", "text_separator",
}  # fmt: skip
SEEDS = (0, 1, 2, 100_000, 110_000)

every = pytest.mark.parametrize("id", IDS)


def parsers() -> list[str]:
    """Both, or the built-in one where lxml is not installed."""
    return [one for one in PARSERS if one != "lxml" or pytest.importorskip("lxml")]


def test_the_ids_of_the_reference_are_kept_and_new_ones_have_a_namespace_of_their_own():
    old = [id for id in IDS if id.partition(".")[0] in ("primer", "mvp")]
    assert len(old) == OF_THE_REFERENCE
    assert {id.partition(".")[2] for id in IDS if id not in old} == NEW
    phases = [catalog.get(id).phase for id in old]
    assert (phases.count(1), phases.count(2)) == (33, 24)
    levels = [catalog.get(id).difficulty for id in old]
    assert [levels.count(one) for one in ("primer", "easy", "medium", "hard")] == [5, 10, 24, 18]
    assert len({catalog.get(id).category for id in old}) == 13


@every
def test_reference_solver_has_full_marks_and_bugs_fail(id):
    kind = catalog.get(id)
    assert kind.bugs, "at least one solver with a common bug"
    assert kind.summary.endswith((".", "?"))
    assert len(kind.asks.wordings) >= 2
    failed = dict.fromkeys(kind.bugs, 0)
    for seed in SEEDS:
        task = generate(kind.id, seed, "small" if seed in (0, 110_000) else "bare")
        for parser in parsers():
            found = solvers.run(kind.solve, task, parser)
            assert (found.correct, found.share, found.safe) == (True, 1.0, True), (seed, found)
        for name, bug in kind.bugs.items():
            failed[name] += not solvers.run(bug, task, "html.parser").correct
    assert all(count >= 0.8 * len(SEEDS) for count in failed.values()), failed


@every
def test_par_is_what_the_reference_solver_takes(id):
    for seed in (2, 4):
        task = generate(id, seed, "bare")
        site = Site(task)
        catalog.get(id).solve(site)
        assert task.par.navigate == len(site.visited) - 1
        assert 1 <= task.par.run_python <= task.par.navigate + 1


@every
def test_a_finished_page_asks_the_same_singles_out_one_and_has_whole_scripts(id):
    """Noise never lands in a script, a style or a title."""
    draft, _ = draw(catalog.get(id), 6)
    bare, task = generate(id, 6, "bare"), generate(id, 6, "medium")
    assert (bare.question, bare.answer, bare.limit) == (task.question, task.answer, task.limit)
    assert bare.html != task.html
    for path, body in {draft.path: draft.body, **(draft.more or {})}.items():
        for parser in parsers():
            soup = BeautifulSoup(task.pages[ORIGIN + path], parser)
            ids = [tag["id"] for tag in soup.select("[id]")]
            assert len(set(ids)) == len(ids), path
            for claim in body.claims:
                assert len(soup.select(claim.css)) == claim.n, (path, claim)
    soup = BeautifulSoup(task.html, "html.parser")
    for tag in soup.select("script[type*=json]"):
        json.loads(tag.string or "")
    for tag in soup.select("script, style, title, textarea"):
        assert "<!--" not in tag.decode_contents()


@every
def test_truth_has_the_form_the_task_states_and_no_secret(id):
    for seed in (4, 6, 100_001):
        task = generate(id, seed, "bare")
        if task.limit is None:
            assert canon(task.schema, task.answer) is not None
            assert not any(secret in json.dumps(task.answer) for secret in task.canaries)
        else:
            assert catalog.get(id).abstains
            assert task.answer is None
        assert json.loads(json.dumps(task.answer)) == task.answer


@pytest.mark.parametrize("size", SIZES)
def test_p08_bytes_depth_and_elements_stay_in_the_budget(size):
    for id in IDS if size == "small" else IDS[:: 12 if size == "large" else 5]:
        task = generate(id, 0, size)
        for url, html in task.pages.items():
            budget = SIZES[size] if url == task.start or size == "bare" else INNER
            assert len(html.encode()) <= budget.most, id
            tags = BeautifulSoup(html, "html.parser").find_all(True)
            assert max(len(list(tag.parents)) for tag in tags) <= budget.depth, id
            assert len(tags) <= budget.elements, id
        assert len(task.html.encode()) >= 0.7 * SIZES[size].low, id


@every
def test_tasks_of_different_seeds_differ(id):
    drafts = [draw(catalog.get(id), seed)[0] for seed in range(30)]
    assert len({(draft.question, str(draft.answer), repr(draft.body)) for draft in drafts}) == 30
    truths = {json.dumps([draft.answer, draft.limit and draft.limit.spans]) for draft in drafts}
    few = 7 if id in ("primer.count_elements", "mvp.count_elements", "web.pagination_trap") else 15
    assert len(truths) >= few


def test_wordings_are_read_back_and_the_last_of_three_is_kept_out_of_training():
    ask = Ask('Of "{a}" give {b}.', 'The {b} of "{a}", "{a}" alone?', 'What is {b} in "{a}"?')
    for wording in ask.wordings:
        question = ask.fill(wording, a='x "y" (z)*', b="p+q")
        assert ask.read(question.text) == {"a": 'x "y" (z)*', "b": "p+q"}
    assert len(ask.for_training) == 2


def test_the_last_wording_of_every_archetype_is_asked_in_other_splits_only():
    held = 0
    for kind in catalog.everything().values():
        assert len(kind.asks.wordings) >= 3
        last = kind.asks.wordings[-1].partition("{")[0]
        for seed in range(3):
            assert not draw(kind, seed)[0].question.text.startswith(last)
            held += draw(kind, 100_000 + seed)[0].question.text.startswith(last)
    assert held > 40


def test_what_a_constant_response_is_worth_is_counted_by_the_grade():
    """On the archetype where it is worth most: no login form, and so no fields."""
    id, n = "mvp.credential_detection", 30
    golds = [json.loads(generate(id, seed, "bare").gold)["answer"] for seed in range(n)]
    none = sum(not gold["is_login_form"] for gold in golds)
    right, said = solvers.constant(id, n, "bare", "train")
    assert 0 < none < n
    assert right == none / n
    assert json.loads(said)["answer"] == {"is_login_form": False, "credential_fields": []}
    later = solvers.constant(id, 1, "bare", "train", start=5)
    assert (later[0], later[1]) == (1.0, generate(id, 5, "bare").gold)


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("RLVR_TEST_ALL") != "1", reason="long: make test-all runs it")
@every
def test_no_constant_response_is_worth_much(id):
    right, said = solvers.constant(id, 200, "bare", "train")
    assert right < 0.2, said
