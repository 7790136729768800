import json
import random

import pytest
import yaml

from rlvr_core.api import Message, Problem
from rlvr_core.testing.clock import cpu_limit
from rlvr_lab.contamination.search import Trained, normalise
from tests.support.tables import table


def problem(id_, prompt):
    return Problem(id=id_, prompt=prompt, verifier="x", spec={}, dataset="d")


def searched(trained, held_out):
    data = Trained()
    data.add_problems("data", [problem(f"t{i}", text) for i, text in enumerate(trained)])
    return data.search([problem(f"e{i}", text) for i, text in enumerate(held_out)])


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("What is 12 + 7?", "  WHAT is\n12 + 7?", True),
        ("\uff21\uff22\u3000\ufb01ne", "ab fine", True),
        ("STRASSE", "stra\u00dfe", True),
        ("3 - 4", "3 + 4", False),
        ("What is 1.5?", "What is 15?", False),
        ("End with !", "End with ?", False),
    ],
)
def test_texts_that_are_the_same_but_for_case_and_spacing(one, other, same):
    assert (normalise(one) == normalise(other)) is same


def test_conversations_and_plain_prompts_ask_the_same():
    turns = (Message("system", "Be brief."), Message("user", "What is 2 + 2?"))
    found = searched([turns], ["what is 2 + 2?"])
    assert [(m.id, m.trained, m.by) for m in found.matches] == [("e0", "t0", "text")]


THINGS = [f"{one} {two}" for one in ("red", "old", "tall", "odd") for two in (
    "zoo", "ship", "park", "mill", "barn", "farm", "cave", "lamp", "road", "tent")]  # fmt: skip
PATTERNS = table(__file__, "patterns")


def test_data_made_from_patterns_draw_nothing():
    """40 things in 8 patterns, 240 to train on and 80 held out: alike, and none the same."""
    prompts = [pattern.format(thing) for pattern in PATTERNS for thing in THINGS]
    random.Random(0).shuffle(prompts)
    found = searched(prompts[:240], prompts[240:])
    assert found.matches == ()
    assert found.lines() == ["contamination: none of 80 problems is in data"]


STORY = (
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in "
    "May. Her brother keeps the money in a green tin. How many clips did Natalia sell altogether?"
)


def test_a_long_problem_is_known_in_another_template():
    others = [f"A farmer has {i} cows and buys {3 * i + 1} more on a rainy day." for i in range(50)]
    told = f"Question: {STORY}\nAnswer with one number."
    found = searched([*others, told], [STORY, STORY.replace("48", "52").replace("half", "twice")])
    assert [(m.id, m.trained, m.by) for m in found.matches] == [("e0", "t50", "ngrams")]
    assert found.share == 0.5
    assert found.data()["by_ngrams"] == 1


def test_100k_problems_are_cheap():
    story = "A farmer has {} cows and buys {} more at the market on a rainy day. How many now?"
    problems = [problem(f"p{i}", story.format(i, 3 * i + 1)) for i in range(100_000)]
    with cpu_limit(30):
        trained = Trained()
        trained.add_problems("data", problems)
        assert len(trained.search(problems[:1000]).matches) == 1000


LAX = "--allow-truncation"


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_an_evaluation_names_what_was_trained_on(lab, model_dir):
    run = lab.run(model_dir)
    task = ("--task", "toy/letters", LAX)
    clean = lab.json("eval", "last", *task, "--limit", "5", "--out", "clean")
    found = clean["tasks"]["toy/letters"]["contamination"]
    assert found["against"] == [f"the training data of {run.name}"]
    assert (found["n"], found["share"]) == (0, 0.0)

    rows = [{"id": "p3", "prompt": "?"}, {"question": "  say\n37:"}]
    write_rows(lab.folder / "more.jsonl", rows)
    more = ("--trained-on", "more.jsonl")
    done = lab.rlvr("eval", "last", *task, *more, "--out", "out", check=2)
    assert "2 of 24 problems were trained on: p1 (the prompt of line 2), p3" in done.stderr
    assert "--allow-contamination" in done.stderr
    assert not (lab.folder / "out").exists()  # refused before anything is sampled
    allowed = lab.rlvr("eval", "last", *task, *more, "--out", "out", "--allow-contamination")
    assert "warning: contamination: 2 of 24 problems are in" in allowed.stderr
    summary = json.loads((lab.folder / "out" / "toy_letters" / "summary.json").read_text())
    found = summary["contamination"]
    assert (found["n"], found["by_id"], found["by_text"]) == (2, 1, 1)
    assert found["examples"] == [
        {"id": "p1", "trained": "line 2", "by": "text"},
        {"id": "p3", "trained": "p3", "by": "id"},
    ]

    # a model of unknown origin, and a run named for it
    base = lab.json("eval", model_dir, *task, "--limit", "2", "--out", "base")
    assert "not known" in base["tasks"]["toy/letters"]["contamination"]["not_checked"][0]
    told = lab.json("eval", model_dir, *task, "--limit", "2", "--out", "b2", "--trained-on", "last")
    assert told["tasks"]["toy/letters"]["contamination"]["against"] == found["against"][-1:]

    # data that are gone, or changed, are said to be, not taken for clean
    data = lab.folder / "data.jsonl"
    data.write_text(data.read_text().replace("Speak 1.", "Speak 99."))
    changed = lab.json("eval", "last", *task, "--limit", "2", "--out", "c")
    (why,) = changed["tasks"]["toy/letters"]["contamination"]["not_checked"]
    assert "other problems now than when the run began" in why
    data.unlink()
    done = lab.rlvr("eval", "last", *task, "--limit", "2", "--out", "d")
    assert "contamination not checked: the data of run" in done.stderr
    lab.rlvr("eval", model_dir, *task, "--out", "e", "--trained-on", "last", check=2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there are no rows"),
        ('{"answer": 3}\n', "neither an id nor a prompt"),
        ('{"prompt": 3}\n', "neither text nor a list of messages"),
        ("no json\n", "not JSON"),
        (None, "there is no file 'bad.jsonl'"),
    ],
)
def test_bad_files_of_trained_problems(lab, model_dir, text, words):
    if text is not None:
        (lab.folder / "bad.jsonl").write_text(text)
    command = ("eval", model_dir, "--task", "letters", "--trained-on", "bad.jsonl")
    done = lab.rlvr(*command, check=2)
    assert words in done.stderr
    assert "bad.jsonl" in done.stderr


def test_a_run_refuses_held_out_problems_that_it_trains_on(lab, model_dir):
    lab.write_run_config(model_dir, eval={"tasks": ["toy/letters"]})
    rows = [{"id": f"q{i}", "question": f"Speak {i}.", "hopeless": False} for i in range(8)]
    rows[5]["question"] = "SAY 74:"
    write_rows(lab.folder / "data.jsonl", rows)
    done = lab.rlvr("run", "config.yaml", "--dry-run", check=2)
    assert "toy/letters: 1 of 24 problems were trained on: p2 (the prompt of q5)" in done.stderr
    assert "eval.max_contaminated" in done.stderr
    lab.rlvr("run", "config.yaml", "--set", "eval.max_contaminated=0.1", "--display", "none")
    (run,) = (lab.folder / "runs").iterdir()
    recorded = json.loads((run / "run.json").read_text())["checks"]["contamination"]["toy/letters"]
    assert recorded["examples"] == [{"id": "p2", "trained": "q5", "by": "text"}]

    # what a run's checkpoint was trained on stays known when another run goes on from it
    rows[5]["question"] = "Speak 5."
    for row in rows:
        row["id"] = f"second-{row['id']}"
    write_rows(lab.folder / "second.jsonl", rows)
    config = yaml.safe_load((lab.folder / "config.yaml").read_text())
    config["model"]["path"] = str(run / "checkpoints" / "latest")
    config["data"]["sources"][0]["with"]["path"] = "second.jsonl"
    (lab.folder / "second.yaml").write_text(yaml.safe_dump(config))
    done = lab.rlvr("run", "second.yaml", "--dry-run", check=2)
    assert "p2 (the prompt of q5)" in done.stderr


def test_answers_of_a_loss_are_trained_on_too(lab, model_dir):
    """A warm start on answers to the held-out problems is what the guard is for."""
    rows = [{"id": f"a{i}", "question": f"Recite {i}.", "answer": "abc"} for i in range(9)]
    write_rows(
        lab.folder / "answers.jsonl", [*rows, {**rows[0], "id": "a9", "question": "say 74:"}]
    )
    with_ = {"path": "answers.jsonl", "prompt": "question", "id": "id", "verifier": "exact"}
    sft = {
        "use": "sft",
        "with": {"target": "answer", "rows_per_step": 4},
        "data": {"use": "core/jsonl", "with": with_},
    }
    lab.write_run_config(model_dir, loss=sft, eval={"tasks": ["toy/letters"]})
    done = lab.rlvr("run", "config.yaml", "--dry-run", check=2)
    assert "toy/letters: 1 of 24 problems were trained on: p2 (the prompt of a9)" in done.stderr
    # a run without that task does not look, but its checkpoint is known by what it imitated
    lab.rlvr("run", "config.yaml", "--set", "eval.tasks=[]", "--display", "none")
    told = lab.rlvr("eval", "last", "--task", "toy/letters", LAX, "--out", "out", check=2)
    assert "p2 (the prompt of a9)" in told.stderr
    (run,) = (lab.folder / "runs").iterdir()
    assert json.loads((run / "run.json").read_text())["data"]["loss.answers"]["problems"] == 10
    # other answers than those the run began with: it does not go on, and says what is not known
    write_rows(lab.folder / "answers.jsonl", [*rows, {**rows[0], "id": "a9", "answer": "xyz"}])
    more = ("run", "--resume", "last", "--set", "train.steps=9")
    assert "the data are not those the run began with" in lab.rlvr(*more, check=2).stderr
    asked = ("eval", "last", "--task", "toy/letters", LAX, "--limit", "2", "--out", "out2")
    found = lab.json(*asked)["tasks"]["toy/letters"]["contamination"]
    assert "other answers now" in found["not_checked"][0]
