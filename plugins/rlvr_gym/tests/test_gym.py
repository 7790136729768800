"""Generators as problems: equal in every process, scored as they score, fenced with a reason."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from rlvr_core.api import Completion, DataError, Problem
from rlvr_devkit.conformance.as_tests import conformance
from rlvr_gym.datasets import HINT, Tasks
from rlvr_gym.entries import curriculum, defaults, entry, names, settings
from rlvr_gym.fences import FENCED, MENDED, MIXTURE, fenced_levels
from rlvr_gym.rules import JUDGED
from rlvr_gym.verifiers import Answer

OPEN = [name for name in names() if name not in FENCED]
VERIFIER = Answer(Answer.Config())


def problems(*tasks, **options):
    return list(Tasks(Tasks.Config(tasks=tasks, **options)).load())


def judged(problem, text):
    return VERIFIER.verify(problem, Completion.from_text(text))


def test_every_generator_is_open_or_fenced():
    assert len(names()) == 106
    assert set(FENCED) < set(names())
    assert all(reason for reason in FENCED.values())


@pytest.mark.parametrize("name", OPEN)
def test_the_generators_own_answer_has_full_marks_and_another_has_none(name):
    first, second = problems(name, n=2, allow_fenced=False)
    for one in (first, second):
        VERIFIER.check(one)
        gold = VERIFIER.gold(one)
        assert judged(one, gold).score == 1.0
        assert judged(one, gold).passed
        assert judged(one, "I do not know").passed is False
        assert judged(one, "<answer>qqzzqq</answer>").passed is False
        assert judged(one, f"{gold} <answer>zzqqzz</answer>").score == 0.0  # the last one counts
    assert json.loads(json.dumps(dict(first.spec))) == dict(first.spec)


PROGRAM = """
import hashlib
from rlvr_gym.entries import digest, entry
import sys
whole = hashlib.sha256()
for name in sys.argv[1:]:
    for index in (3, 0):
        whole.update(digest(entry(name, {}, 42, index)).encode())
print(whole.hexdigest())
"""


def test_other_processes_with_other_hash_seeds_make_the_same_problems():
    found = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *OPEN],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(done.stdout)
    assert len(found) == 1


def test_a_problem_says_its_task_and_asks_for_tags():
    (one,) = problems("spell_backward", n=1)
    assert one.prompt.endswith(HINT)
    assert one.tags == {"task": "spell_backward", "category": "algorithmic"}
    word = entry("spell_backward", {}, one.spec["seed"], one.spec["index"])["metadata"]["word"]
    assert VERIFIER.gold(one) == f"<answer>{word[::-1]}</answer>"
    (bare,) = problems("spell_backward", n=1, place="response")
    assert HINT not in bare.prompt
    assert VERIFIER.gold(bare) == word[::-1]
    assert judged(bare, f" {word[::-1]}\n").passed


def test_what_is_thought_is_no_answer():
    (one,) = problems("spell_backward", n=1)
    gold = VERIFIER.gold(one)
    assert judged(one, f"<think>no</think>{gold}").passed
    assert not judged(one, f"<think>{gold}</think>").passed


def test_nothing_is_asked_in_training_and_held_out():
    train = problems("spell_backward", n=200)
    held = problems("spell_backward", n=100, split="heldout")
    assert len(train) == 200
    assert not {one.prompt for one in train} & {one.prompt for one in held}
    assert len({one.id for one in (*train, *held)}) == 300


@pytest.mark.parametrize("task", [one for one in names() if curriculum(one)])
def test_every_level_of_every_curriculum_has_options(task):
    highest = max(map(len, curriculum(task).values())) - 1
    for level in (0, highest):
        chosen = settings(task, level, {})
        assert set(chosen) <= set(defaults(task))
        assert "seed" not in chosen
        assert json.loads(json.dumps(chosen)) == chosen


def test_levels_are_those_of_the_curriculum_and_come_in_order():
    found = problems("chain_sum", levels=[0, 1], n=40)
    assert [one.tags["level"] for one in found] == [0] * 20 + [1] * 20
    easy, harder = (settings("chain_sum", level, {}) for level in (0, 1))
    assert easy["max_terms"] <= harder["max_terms"]
    assert easy["max_digits"] <= harder["max_digits"]
    assert easy != harder
    assert settings("chain_sum", 0, {"max_terms": 9})["max_terms"] == 9


def test_mended_defaults_are_those_of_the_data_set_and_options_win():
    assert settings("shortest_path", None, {}) == MENDED["shortest_path"] == {"p_blocked": 0.2}
    assert settings("shortest_path", None, {"p_blocked": 0.4}) == {"p_blocked": 0.4}
    assert settings("shortest_path", 0, {})["p_blocked"] == 0.4
    for task, options in MENDED.items():
        assert set(options) <= set(defaults(task))


def test_the_reference_is_what_the_question_asks_for():
    (one,) = problems("power_function", n=1)
    assert re.fullmatch(r"<answer>-?[0-9][.][0-9]{2}e[-+][0-9]{2}</answer>", VERIFIER.gold(one))


def test_a_mixture_shares_the_problems():
    found = problems("chain_sum", "basic_arithmetic", n=7)
    assert [one.tags["task"] for one in found].count("chain_sum") == 4


@pytest.mark.parametrize("name", sorted(set(FENCED) - {MIXTURE}))
def test_a_fenced_generator_is_refused_with_the_reason(name):
    with pytest.raises(DataError) as caught:
        problems(name, n=1)
    assert FENCED[name] in str(caught.value)
    assert "allow_fenced: true" in str(caught.value)


def test_errors_say_what_to_do():
    with pytest.raises(DataError) as caught:
        problems("spell_backwrd")
    assert caught.value.complaints[0].where == "gym/tasks"
    assert "did you mean: spell_backward?" in caught.value.complaints[0].remedy
    with pytest.raises(DataError, match="mixture"):
        problems(MIXTURE, allow_fenced=True)
    with pytest.raises(DataError) as caught:
        problems("chain_sum", options={"max_trms": 1})
    (complaint,) = caught.value.complaints
    assert complaint.what == "the generator 'chain_sum' has no option 'max_trms'"
    assert complaint.where == "gym/tasks: options"
    assert complaint.remedy[0] == "did you mean: max_terms?"
    with pytest.raises(DataError, match="refuses its options: max_terms must be >= min_terms"):
        problems("chain_sum", options={"min_terms": 3, "max_terms": 2})
    with pytest.raises(DataError) as caught:
        problems("chain_sum", levels=[99])
    assert "it has levels 0 to" in caught.value.complaints[0].remedy[0]


def test_too_few_different_questions_are_an_error():
    options = {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    with pytest.raises(DataError, match=r"makes only 1?[0-9]{2} different problems, not 300"):
        problems("chain_sum", n=300, options=options)  # 10 digits, + or -: 200, a tenth held out


def test_seeds_next_to_each_other_share_few_problems():
    first, second = (problems("spell_backward", n=100, seed=seed) for seed in (1, 2))
    assert len({one.prompt for one in first} & {one.prompt for one in second}) < 20


def test_a_problem_of_another_version_is_unscorable():
    (one,) = problems("spell_backward", n=1)
    spec = {**one.spec, "digest": "0" * 16}
    changed = Problem(one.id, one.prompt, one.verifier, spec, one.dataset)
    with pytest.raises(DataError, match="another problem now"):
        VERIFIER.check(changed)
    assert judged(changed, "x").status == "unscorable"


def _case(index, right):
    one = problems("spell_backward", n=3)[index]
    text = VERIFIER.gold(one) if right else "<answer>nothing</answer>"
    return {"id": one.id, "spec": dict(one.spec), "response": text, "passed": right}


test_answer_conforms = conformance(Answer, cases=[_case(0, True), _case(1, False), _case(2, True)])


def test_levels_that_a_guess_answers_are_fenced_and_the_others_named():
    with pytest.raises(DataError) as caught:
        problems("n_queens", levels=[0, 2], n=4)
    complaint = caught.value.complaints[0]
    assert complaint.what.startswith("level 0 of the generator 'n_queens' is fenced: blind: ")
    assert complaint.remedy[0].startswith("levels that pass: 2")
    assert len(problems("n_queens", levels=[0, 2], n=4, allow_fenced=True)) == 4
    assert len(problems("n_queens", levels=[2], n=4)) == 4


def test_fenced_levels_are_levels_of_open_generators():
    fenced = fenced_levels()
    assert ("letter_counting", 0) in fenced
    assert ("chain_sum", 0) not in fenced
    for task, level in fenced:
        assert task in OPEN
        assert level < max(map(len, curriculum(task).values()))
    with pytest.raises(DataError, match="fenced") as caught:
        problems("letter_counting", levels=[0], n=2)
    assert "defaults pass" in caught.value.complaints[0].remedy[0]


def test_the_commands_show_options_levels_and_fences(capsys):
    from rlvr_core.cli.main import main

    assert main(["gym", "show", "chain_sum"]) == 0
    shown = capsys.readouterr().out
    assert "max_terms" in shown
    assert "num_terms" in shown
    assert "answer: " in shown
    assert main(["gym", "show", "coin_flip"]) == 0
    assert JUDGED["coin_flip"][1] in capsys.readouterr().out
    assert main(["gym", "list"]) == 0
    assert FENCED["boxnet"] in capsys.readouterr().out
    assert main(["gym", "show", "chain_smu"]) != 0
    assert "did you mean: chain_sum?" in capsys.readouterr().err
