"""Twins: further drafts of the same kind on a page, between which only the question tells."""

from __future__ import annotations

import pytest
from bs4 import BeautifulSoup

from rlvr_bs4 import catalog
from rlvr_bs4.generate import draw, generate
from rlvr_bs4.sizes import SIZES
from rlvr_doctor.datacheck.conformance import dataset_conformance


@pytest.mark.parametrize("id", ["primer.extract_by_id", "web.document_order", "mvp.extract_rtl"])
def test_which_of_the_twins_is_meant_is_said_by_the_question_alone(id):
    """The place of the element asked for among those like it is as good as even."""
    places = []
    for seed in range(60):
        task = generate(id, seed, "bare")
        soup = BeautifulSoup(task.html, "html.parser")
        texts = [tag.get_text() for tag in soup.find_all(["span", "p"])]
        places.append(texts.index(task.answer) / (len(texts) - 1))
    assert sum(place < 1 / 3 for place in places) >= 9  # 20 expected, 9 is three sigma below
    assert sum(1 / 3 <= place < 2 / 3 for place in places) >= 9
    assert sum(place >= 2 / 3 for place in places) >= 9


def test_twins_fit_into_the_smallest_page():
    for id, kind in catalog.everything().items():
        if kind.twins:
            html = generate(id, 1, "bare").html
            assert len(html.encode()) <= SIZES["bare"].most, id


def test_secrets_of_the_twins_must_not_be_repeated_either():
    draft, _ = draw(catalog.get("mvp.credential_detection"), 0)
    assert len(draft.canaries) > 4  # two for each login form


test_no_strategy_that_ignores_the_question_is_worth_much = dataset_conformance(
    "bs4/pages",
    config={
        "archetypes": ["primer.extract_by_id", "mvp.list_extraction", "mvp.limit_pdf_embed"],
        "size": "bare",
        "n": 120,
    },
    by=("archetype",),
)
