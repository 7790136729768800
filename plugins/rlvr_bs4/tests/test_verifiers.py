"""``bs4/answer`` and ``bs4/pages`` as the core uses them."""

from __future__ import annotations

import dataclasses
import json

import pytest

from rlvr_bs4.datasets import Pages, problem
from rlvr_bs4.evals import Bench
from rlvr_bs4.generate import generate
from rlvr_bs4.verifiers import Answer
from rlvr_core.api import Completion, DataError, Group, Judged, Verdict
from rlvr_devkit.conformance.as_tests import conformance

SOLVABLE = generate("mvp.extract_images", 3, "small")
LISTED = generate("mvp.partial_data_extraction", 3, "small")
LIMITED = next(
    task for task in (generate("mvp.limit_pdf_embed", seed, "small") for seed in range(9))
    if task.limit
)  # fmt: skip


def case(task, response, score):
    spec = dict(problem(task).spec)
    return {"spec": spec, "response": response, "passed": score == 1.0, "score": score}


def say(answer):
    return json.dumps({"status": "ok", "answer": answer})


test_answer = conformance(
    Answer,
    cases=[
        case(SOLVABLE, SOLVABLE.gold, 1.0),
        case(SOLVABLE, f"It is\n```json\n{SOLVABLE.gold}\n```", 1.0),
        case(SOLVABLE, say(SOLVABLE.answer[:-1]), 0.0),
        case(SOLVABLE, json.dumps(SOLVABLE.answer), 0.0),
        case(SOLVABLE, f"{SOLVABLE.gold} {SOLVABLE.canaries[0]}", -0.5),
        case(LIMITED, LIMITED.gold, 1.0),
        case(LIMITED, say("XX-1000"), 0.0),
        case(LIMITED, LIMITED.gold.replace("document_embed", "image_text"), 0.0),
    ],
)


def verdict(task, response, **options) -> Verdict:
    verifier = Answer(Answer.Config(**options))
    return verifier.verify(problem(task), Completion.from_text(response))


def test_partial_credit_is_for_lists_and_objects_and_only_when_asked_for():
    half = say([*LISTED.answer[:1], {"name": "no", "price": None, "description": None}])
    share = 2 / (2 + len(LISTED.answer))
    plain = verdict(LISTED, half)
    assert (plain.score, plain.passed) == (0.0, False)
    assert plain.parts["partial"] == pytest.approx(share)
    assert verdict(LISTED, half, partial_credit=0.1).score == pytest.approx(0.1 * share)
    assert verdict(LISTED, LISTED.gold, partial_credit=0.1).score == 1.0


def test_parts_name_what_was_right():
    assert dict(verdict(LIMITED, LIMITED.gold).parts) == {
        "correct": 1.0,
        "partial": 1.0,
        "format": 1.0,
        "schema": 1.0,
        "abstained": 1.0,
        "safe": 1.0,
    }
    nothing = verdict(SOLVABLE, "42")
    assert (nothing.parts["format"], nothing.parts["safe"], nothing.extracted) == (0.0, 1.0, None)


def test_another_task_under_the_same_name_is_unscorable_and_not_wrong():
    one = problem(SOLVABLE)
    changed = dataclasses.replace(one, spec={**one.spec, "sha256": "0" * 64})
    with pytest.raises(DataError, match="makes another task"):
        Answer(Answer.Config()).check(changed)
    found = Answer(Answer.Config()).verify(changed, Completion.from_text(SOLVABLE.gold))
    assert (found.score, found.status) == (None, "unscorable")


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"archetype": 1},
        {"seed": "3"},
        {"seed": True},
        {"size": "huge"},
        {"archetype": "no.such"},
    ],
)
def test_bad_specs_are_named(spec):
    one = problem(SOLVABLE)
    bad = dataclasses.replace(one, spec={**one.spec, **spec} if spec else {})
    with pytest.raises(DataError):
        Answer(Answer.Config()).check(bad)


def test_gold_answers_of_a_data_set_pass_and_those_of_others_do_not():
    verifier = Answer(Answer.Config())
    problems = list(Pages(Pages.Config(n=80, size="bare")).load())
    golds = [verifier.gold(one) for one in problems]
    for one, gold, other in zip(problems, golds, golds[1:] + golds[:1], strict=True):
        assert verifier.verify(one, Completion.from_text(gold)).passed
        assert not verifier.verify(one, Completion.from_text(other)).passed
        assert not verifier.verify(one, Completion.from_text("")).passed


def test_problems_are_the_same_at_each_load_and_have_ids_of_their_own():
    loader = Pages(Pages.Config(n=80, size="bare", split="eval"))
    one, two = list(loader.load()), list(loader.load())
    assert one == two
    assert len({problem_.id for problem_ in one}) == 80
    assert next(iter(loader.load())) == one[0]


def test_problems_of_other_sizes_have_other_ids():
    ids = {
        problem(generate("mvp.extract_links", 1, size)).id for size in ("bare", "small", "large")
    }
    assert len(ids) == 3


def test_bench_scores_by_category_difficulty_and_size():
    bench = Bench(Bench.Config(limit=30, max_size="small"))
    problems = bench.problems()
    assert len(problems) == 30
    verifier = Answer(Answer.Config())
    groups = []
    for index, one in enumerate(problems):
        text = verifier.gold(one) if index % 3 else "{}"
        completion = Completion.from_text(text)
        found = verifier.verify(one, completion)
        groups.append(Group(one, (Judged(completion, {"auto": found}, 0.0, found.passed),), 0))
    report = bench.score(groups)
    assert report.n == 30
    assert report.metrics["accuracy"] == pytest.approx(20 / 30)
    assert report.metrics["format"] == pytest.approx(20 / 30)
    assert (report.metrics["safe"], report.metrics["unscored"]) == (1.0, 0.0)
    small = [i for i, one in enumerate(problems) if one.tags["size"] == "small"]
    assert report.metrics["accuracy/small"] == pytest.approx(
        sum(i % 3 > 0 for i in small) / len(small)
    )
