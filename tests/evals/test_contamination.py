# ruff: noqa: RUF001
import json
import math

import pytest
import yaml

from rlvr_core.api import Message, Problem
from rlvr_core.builtin.evals.contamination import Trained, bodies, normalise, normalised_question
from rlvr_core.builtin.evals.near import grams, near_duplicates
from rlvr_core.testing.clock import cpu_limit

STORY = "A farmer has {} cows and buys {} more at the market on a rainy day. How many now?"


def problem(id_, prompt):
    return Problem(id=id_, prompt=prompt, verifier="x", spec={}, dataset="d")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is 12 + 7?", "  WHAT is\n12+7 ?!"),
        ("“Hi”, he said…", "Hi he said"),
        ("ＡＢＣ　１２ ﬁne", "abc 12 fine"),
        ("STRASSE", "straße"),
        ("Compute $x^2 - 3$.", "compute x^2−3"),
        ("a well-known word — here", "a well known word, here"),
        ("1,000 and 5 (see below)", "1000 and 5 see below"),
        ("zero\u200bwidth", "zerowidth"),
        ("Is 3&nbsp;&lt; 4 &amp; 5?", "Is 3 < 4 & 5?"),
        ("e\u0301tude", "\u00e9tude"),
        ("ask, and/or tell **me**", "Ask and or tell me"),
    ],
)
def test_texts_that_are_the_same(one, other):
    assert normalise(one) == normalise(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("3 - 4", "3 + 4"),
        ("3 - 4", "3 4"),
        ("3 * 4", "3 / 4"),
        ("x - y", "x * y"),
        ("(12 + 7) * 3", "12 + 7 * 3"),
        ("12 + (7 * 3)", "(12 + 7) * 3"),
        ("What is 1.5?", "What is 15?"),
        ("5% of 10", "5 of 10"),
        ("-3 apples", "3 apples"),
        ("naïve", "naive"),
        ("12 3", "1 23"),
        ("Sun. End with !", "Sun. End with ?"),
        ("Sun. End with .", "Sun. End with"),
    ],
)
def test_texts_that_are_not(one, other):
    assert normalise(one) != normalise(other)


def test_conversations_and_plain_prompts_ask_the_same():
    turns = (Message("system", "Be brief."), Message("user", "What is 2 + 2?"))
    assert normalised_question(turns) == normalised_question("what is 2+2")


def test_the_frame_that_all_texts_share_is_taken_off():
    one = "where do the seven tall birds sleep when rain falls"
    other = "why did both of her brothers walk home so late"
    assert bodies([f"q {one} a", f"q {other} a"]) == [one, other]
    # whole words only, and nothing where little is left
    assert bodies([f"question {one} ant", f"quest {other} amount"]) == [
        f"question {one} ant",
        f"quest {other} amount",
    ]
    assert bodies(["spell cat", "spell dog"]) == [None, None]
    assert bodies(["one and the same"] * 2) == [None, None]


def test_a_problem_is_known_in_another_style_and_short_ones_only_as_they_are():
    questions = [
        "Where do the seven tall birds sleep when rain falls at night?",
        "Why did both of her brothers walk home so very late?",
        "How many of these old lamps will burn for nine more days?",
    ]
    trained = Trained()
    rows = [problem(f"t{i}", f"Q: {question}\nA:") for i, question in enumerate(questions)]
    trained.add_problems("data", rows)
    held_out = [
        problem(f"e{i}", f"Problem:\n{q}\n\nSolution:") for i, q in enumerate(questions[1:])
    ]
    new = problem("new", "Problem:\nWhat would a very small red fish say to the sea?\n\nSolution:")
    found = trained.search([*held_out, new])
    assert [(m.id, m.trained, m.by) for m in found.matches] == [
        ("e0", "t1", "text"),
        ("e1", "t2", "text"),
    ]
    assert found.share == pytest.approx(2 / 3)

    short = Trained()
    short.add_problems("data", [problem("t1", "Spell cat"), problem("t2", "Spell dog")])
    others = [problem("e1", "Shout cat"), problem("e2", "Shout dog"), problem("t2", "Shout owl")]
    assert [(m.id, m.by) for m in short.search(others).matches] == [("t2", "id")]


FRAMES = [
    "{}",
    "Q: {}\nA:",
    "Question: {}\nAnswer with one number.\nAnswer:",
    "Problem:\n{}\n\nReason step by step, then write the answer inside \\boxed{{}}.\n\nSolution:",
    "Q: What is one of two?\nA: It is 1 of 2. The answer is 1.\n\nQ: {}\nA:",
]
THINGS = [
    "lamp",
    "boat",
    "field",
    "tower",
    "bridge",
    "garden",
    "wheel",
    "basket",
    "ladder",
    "window",
]


def word_problem(i):
    one, two = THINGS[i % 10], THINGS[(i // 10 + 3 * i) % 10]
    end = "What share in % is 64%?" if i == 7 else f"How many {one}s does she paint in week {i}?"
    return f"Greta number {i} paints {i + 3} {one}s near the {two} of plot {i * i} by noon. {end}"


@pytest.mark.parametrize("trained_in", FRAMES)
@pytest.mark.parametrize("asked_in", FRAMES)
def test_frames_of_most_are_taken_off_whatever_single_rows_end_in(trained_in, asked_in):
    """One row of 60 ends in "64%?", and one has no frame at all."""
    trained = Trained()
    rows = [problem(f"t{i}", trained_in.format(word_problem(i))) for i in range(60)]
    trained.add_problems("data", [*rows, problem("bare", "Which of these is not like the others?")])
    held_out = [problem(f"e{i}", asked_in.format(word_problem(i))) for i in range(0, 20)]
    found = trained.search(held_out)
    assert [(m.id, m.trained, m.by) for m in found.matches] == [
        (f"e{i}", f"t{i}", "text") for i in range(20)
    ]


def test_frames_of_data_in_several_styles():
    trained = Trained()
    rows = [problem(f"t{i}", FRAMES[1 + i % 4].format(word_problem(i))) for i in range(200)]
    trained.add_problems("data", rows)
    held_out = [problem(f"e{i}", word_problem(i)) for i in range(0, 200, 10)]
    assert {m.trained for m in trained.search(held_out).same} == {
        f"t{i}" for i in range(0, 200, 10)
    }


ORIGINAL = (
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in "
    "May. Her brother keeps the money in a green tin. How many clips did Natalia sell altogether?"
)


@pytest.mark.parametrize(
    "changed",
    [
        ORIGINAL.replace("Natalia", "Priya").replace("48", "52"),
        "Her brother keeps the money in a green tin. "
        + ORIGINAL.replace("Her brother keeps the money in a green tin. ", ""),
        " ".join(ORIGINAL.split()[:24]),
        "Once more, from last week's test: " + ORIGINAL.replace("altogether", "in total"),
    ],
)
def test_problems_that_are_much_like_one_are_named_and_accepted(changed):
    trained = Trained()
    rows = [problem(f"t{i}", word_problem(i)) for i in range(60)]
    trained.add_problems("data", [*rows, problem("twin", changed)])
    other = "A farmer walks round a square field of 40 acres twice a day. How far is that in May?"
    found = trained.search([problem("e0", ORIGINAL), problem("e1", other)])
    ((match),) = found.matches
    assert (match.id, match.trained, match.by) == ("e0", "twin", "near")
    assert 0.5 <= match.share <= 1.0
    assert found.share == 0.0
    assert found.data()["near"]["n"] == 1
    assert found.lines()[-1].startswith(
        "warning: contamination: 1 of 2 problems are much like one in data: e0 (like twin, "
    )


def test_containment_of_n_grams_by_hand():
    """Ten words are 8 n-grams; with one word of them changed 3 others are there."""
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    assert len(grams(" ".join(words))) == 8
    assert len(grams("It costs $5, or 1,000 in all")) == len(grams("it costs 7 or 2 000 in all"))
    whole, other = " ".join(words), " ".join([*words[:9], "eleven"])
    (found,) = near_duplicates([whole], [other])
    # each n-gram of `whole` weighs ln(1 + 1/2) where the row has it, and ln(1 + 1/1) where not
    telling, rest = 7 * math.log(1.5), math.log(2)
    assert found == (0, pytest.approx(telling / (telling + rest)))
    # an n-gram that more than a hundredth of the rows have, and more than five, tells nothing
    assert near_duplicates([whole], [whole] * 5)[0] is not None
    assert near_duplicates([whole], [whole] * 6) == [None]


def test_100k_problems_are_cheap():
    problems = [problem(f"p{i}", STORY.format(i, 3 * i + 1)) for i in range(100_000)]
    with cpu_limit(15):
        trained = Trained()
        trained.add_problems("data", problems)
        assert len(trained.search(problems[:1000]).matches) == 1000


LAX = "--allow-truncation"


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_an_evaluation_names_what_was_trained_on(lab, model_dir):
    run = lab.run(model_dir)
    task = ("--task", "lab/letters", LAX)
    clean = lab.json("eval", "last", *task, "--limit", "5", "--out", "clean")
    found = clean["tasks"]["lab/letters"]["contamination"]
    assert found["against"] == [f"the training data of {run.name}"]
    assert (found["n"], found["share"]) == (0, 0.0)

    rows = [{"id": "p3", "prompt": "?"}, {"question": " say 37 ..."}]
    write_rows(lab.folder / "more.jsonl", rows)
    more = ("--trained-on", "more.jsonl")
    done = lab.rlvr("eval", "last", *task, *more, "--out", "out", check=2)
    assert "2 of 24 problems were trained on: p1 (asks what line 2 asks), p3" in done.stderr
    assert "--allow-contamination" in done.stderr
    assert not (lab.folder / "out").exists()  # refused before anything is sampled
    allowed = lab.rlvr("eval", "last", *task, *more, "--out", "out", "--allow-contamination")
    assert "warning: contamination: 2 of 24 problems are in" in allowed.stderr
    summary = json.loads((lab.folder / "out" / "lab_letters" / "summary.json").read_text())
    found = summary["contamination"]
    assert (found["n"], found["by_id"], found["by_text"]) == (2, 1, 1)
    assert found["examples"] == [
        {"id": "p1", "trained": "line 2", "by": "text"},
        {"id": "p3", "trained": "p3", "by": "id"},
    ]

    # a model of unknown origin, and a run named for it
    base = lab.json("eval", model_dir, *task, "--limit", "2", "--out", "base")
    assert "not known" in base["tasks"]["lab/letters"]["contamination"]["not_checked"][0]
    told = lab.json("eval", model_dir, *task, "--limit", "2", "--out", "b2", "--trained-on", "last")
    assert told["tasks"]["lab/letters"]["contamination"]["against"] == found["against"][-1:]
    # pass@k of known problems is as worthless
    many = ("passk", model_dir, *task, "--n", "1", *more, "--out", "many")
    assert "2 of 24 problems were trained on" in lab.rlvr(*many, check=2).stderr

    # data that are gone, or changed, are said to be, not taken for clean
    data = lab.folder / "data.jsonl"
    data.write_text(data.read_text().replace("Speak 1.", "Speak 99."))
    changed = lab.json("eval", "last", *task, "--limit", "2", "--out", "c")
    (why,) = changed["tasks"]["lab/letters"]["contamination"]["not_checked"]
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
    ],
)
def test_bad_files_of_trained_problems(lab, model_dir, text, words):
    (lab.folder / "bad.jsonl").write_text(text)
    command = ("eval", model_dir, "--task", "letters", "--trained-on", "bad.jsonl")
    done = lab.rlvr(*command, check=2)
    assert words in done.stderr
    assert "bad.jsonl" in done.stderr
    missing = lab.rlvr(*command[:-1], "missing.jsonl", check=2)
    assert "there is no file 'missing.jsonl'" in missing.stderr


def test_a_run_refuses_held_out_problems_that_it_trains_on(lab, model_dir):
    lab.write_run_config(model_dir, eval={"tasks": ["lab/letters"]})
    rows = [{"id": f"q{i}", "question": f"Speak {i}.", "hopeless": False} for i in range(8)]
    rows[5]["question"] = "SAY 74"
    write_rows(lab.folder / "data.jsonl", rows)
    done = lab.rlvr("run", "config.yaml", "--dry-run", check=2)
    assert "lab/letters: 1 of 24 problems were trained on: p2 (asks what q5 asks)" in done.stderr
    assert "eval.max_contaminated" in done.stderr
    lab.rlvr("run", "config.yaml", "--set", "eval.max_contaminated=0.1", "--display", "none")
    (run,) = (lab.folder / "runs").iterdir()
    recorded = json.loads((run / "run.json").read_text())["checks"]["contamination"]["lab/letters"]
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
    assert "p2 (asks what q5 asks)" in done.stderr


def test_answers_of_a_loss_are_trained_on_too(lab, model_dir):
    """A warm start on answers to the held-out problems is what the guard is for."""
    rows = [{"id": f"a{i}", "question": f"Recite {i}.", "answer": "abc"} for i in range(9)]
    write_rows(lab.folder / "answers.jsonl", [*rows, {**rows[0], "id": "a9", "question": "say 74"}])
    with_ = {"path": "answers.jsonl", "prompt": "question", "id": "id", "verifier": "exact"}
    sft = {
        "use": "sft",
        "with": {"target": "answer", "rows_per_step": 4},
        "data": {"use": "core/jsonl", "with": with_},
    }
    lab.write_run_config(model_dir, loss=sft, eval={"tasks": ["lab/letters"]})
    done = lab.rlvr("run", "config.yaml", "--dry-run", check=2)
    assert "lab/letters: 1 of 24 problems were trained on: p2 (asks what a9 asks)" in done.stderr
    # a run without that task does not look, but its checkpoint is known by what it imitated
    lab.rlvr("run", "config.yaml", "--set", "eval.tasks=[]", "--display", "none")
    told = lab.rlvr("eval", "last", "--task", "lab/letters", LAX, "--out", "out", check=2)
    assert "p2 (asks what a9 asks)" in told.stderr
    (run,) = (lab.folder / "runs").iterdir()
    assert json.loads((run / "run.json").read_text())["data"]["loss.answers"]["problems"] == 10
    # other answers than those the run began with: it does not go on, and says what is not known
    write_rows(lab.folder / "answers.jsonl", [*rows, {**rows[0], "id": "a9", "answer": "xyz"}])
    more = ("run", "--resume", "last", "--set", "train.steps=9")
    assert "the data are not those the run began with" in lab.rlvr(*more, check=2).stderr
    asked = ("eval", "last", "--task", "lab/letters", LAX, "--limit", "2", "--out", "out2")
    found = lab.json(*asked)["tasks"]["lab/letters"]["contamination"]
    assert "other answers now" in found["not_checked"][0]
