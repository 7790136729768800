"""Tasks without an answer: it is absent, their twins have it, nothing gives them away."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from statistics import fmean

import pytest
from bs4 import BeautifulSoup

from rlvr_bs4 import catalog, prompt, solvers
from rlvr_bs4.datasets import problem
from rlvr_bs4.generate import generate
from rlvr_bs4.grade import grade
from rlvr_bs4.site import Site
from rlvr_bs4.task import REASONS, Abstain

KINDS = [id for id, kind in catalog.everything().items() if kind.abstains]
every = pytest.mark.parametrize("id", KINDS)


@cache
def split(id, n=40):
    tasks = [generate(id, seed, "bare") for seed in range(n)]
    return [t for t in tasks if t.limit], [t for t in tasks if not t.limit]


def test_seven_kinds_may_lack_the_answer_and_use_every_reason():
    assert len(KINDS) == 7
    assert {catalog.get(id).reason for id in KINDS} == set(REASONS)


@every
def test_about_half_can_be_solved(id):
    _, solvable = split(id)
    assert 11 <= len(solvable) <= 29


@every
def test_twins_share_shape_and_spans_are_in_no_solvable_page(id):
    limited, solvable = split(id)
    spans = [span for task in limited for span in task.limit.spans]
    assert not [s for s in spans for task in solvable if s in task.html]
    lengths = [fmean(len(task.html) for task in group) for group in (limited, solvable)]
    assert 0.75 < lengths[0] / lengths[1] < 1.3
    tags = [set().union(*(re.findall(r"<(\w+)", t.html) for t in g)) for g in (limited, solvable)]
    assert tags[0] == tags[1]


@every
def test_evidence_of_another_task_is_no_evidence(id):
    limited, _ = split(id)
    for one, other in pairwise(limited):
        assert grade(one, one.gold).correct
        assert not grade(one, other.gold).correct


@every
def test_always_abstaining_with_anything_vague_never_pays(id):
    kind = catalog.get(id)
    for seed in range(12):
        task = generate(id, seed, "bare")
        for evidence in ("<", "e", " ", "<script>", "<body>", task.question, task.html):
            answer = solvers.response(Abstain(kind.reason, evidence))
            assert not grade(task, answer).correct


@pytest.mark.parametrize("id", ["mvp.limit_js_required", "mvp.limit_canvas_text"])
def test_data_in_character_codes_makes_a_task_solvable(id):
    coded = []
    for seed in range(60):
        task = generate(id, seed, "bare")
        element = catalog.get(id).slots(Site(task))["id"]  # other scripts belong to its twins
        scripts = BeautifulSoup(task.html, "html.parser").select("script")
        script = next(tag.string for tag in scripts if f'"{element}"' in (tag.string or ""))
        coded += [task] if "fromCharCode" in script else []
    assert coded
    assert all(task.limit is None and grade(task, task.gold).correct for task in coded)


def test_prompts_have_one_template_whatever_the_task():
    def template(task):
        text = prompt.single(task)
        head = text.partition("=== PAGE")[0]
        return head.replace(prompt.ask(task), "")

    tasks = [generate(id, seed, "bare") for id in catalog.everything() for seed in (0, 1, 2)]
    assert len({template(task) for task in tasks}) == 1
    assert all(f'"{reason}"' in template(tasks[0]) for reason in REASONS)


def test_question_and_rules_never_hold_the_truth():
    for id in catalog.everything():
        for seed in (20, 21, 22):
            task = generate(id, seed, "bare")
            head = prompt.single(task).partition("=== PAGE")[0]
            if isinstance(task.answer, str) and len(task.answer) > 3:
                assert task.answer not in head
            assert not any(span in head for span in (task.limit.spans if task.limit else ()))


@every
def test_problems_do_not_tell_solvable_ones_apart(id):
    limited, solvable = split(id, 20)
    of = [[problem(task) for task in group] for group in (limited, solvable)]
    for group in of:
        for one in group:
            assert re.fullmatch(r"bs4_[0-9a-f]{16}", one.id)
            assert list(one.spec) == ["archetype", "seed", "size", "sha256"]
            assert list(one.tags) == ["archetype", "subject", "level", "size"]
            assert (one.max_tokens, one.stop, one.environment) == (None, (), None)
