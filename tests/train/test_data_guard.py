"""Guard ``data``: the problems of a run, and its given answers, are those of the files."""

import gzip
import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from rlvr_core.api import Group, GroupsScored, Message, Normalizer, Problem, RunError, RunStarted
from rlvr_core.builtin.datasets.jsonl import JsonLines
from rlvr_core.builtin.demonstrations.demonstrations import Demonstrations
from rlvr_core.builtin.invariants.check import StepView
from rlvr_core.builtin.invariants.data_files import DataFiles, problems_of
from rlvr_core.builtin.invariants.model_files import ModelFiles
from rlvr_core.builtin.samplers.epochs import Shuffle
from rlvr_core.config.model import RunConfig, SplitSection
from rlvr_core.data.load import NamedLoader, audit, load_sources
from rlvr_core.data.prompts import Renderer
from rlvr_core.rollout.source import SingleTurn
from rlvr_core.step.batch import micro_batches
from rlvr_core.testing.random_model import save_random_model

ROWS = [{"n": n, "q": f"{n} and {'long ' * (n == 7)}1?", "a": str(n + 1)} for n in range(12)]
OPTIONS = {"prompt": "q", "verifier": "core/exact"}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    save_random_model(folder, seed=0)
    return folder


class Run:
    """A run whose data are a file, and its guard."""

    def __init__(self, model, folder, options, rows=ROWS, *, split=None, most=1024, losses=None):
        path = folder / "data.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)) + "\n")
        ref = {"use": "core/jsonl", "with": {"path": str(path), **options}}
        ref |= {} if split is None else {"split": split}
        data = {"sources": [ref], "max_prompt_tokens": most, "max_overlong_share": 0.9}
        self.config = RunConfig.model_validate(
            {"model": {"path": str(model)}, "data": data, "train": {"steps": 9}}
        )
        self.files = ModelFiles(str(model), self.config.model)
        renderer = Renderer(self.files.tokenizer, self.config.data.prompt)
        loader = JsonLines(JsonLines.Config(path=str(path), **options))
        held = None if split is None else SplitSection(**split)
        (source,) = load_sources([NamedLoader("core/jsonl", loader, split=held)])
        (self.source,), _ = audit([source], renderer, most, 0.9)
        answers = [(one, one.spec["a"]) for one in self.source.problems if "a" in one.spec]
        self.given = Demonstrations(answers, 4, 1, renderer, self.files.tokenizer)

    def begin(self, source=None, sampler=None):
        source = source or self.source
        prepared = SimpleNamespace(
            config=self.config,
            sources=[source],
            conversations=SingleTurn(),
            demonstrations={},
            losses={},
            sampler=sampler or Shuffle.__new__(Shuffle),
            problems={one.id: one for one in source.problems},
        )
        guard = DataFiles(self.files, prepared)
        guard.run_started(RunStarted(None, {}, 0))
        return guard


def test_problems_by_hand(tmp_path):
    """Rows in an array, compressed; a template, fields under other names, equal rows, a limit."""
    path = tmp_path / "two.small.json"
    rows = [{"q": "2+2", "a": 4}, {"q": "2+2", "a": 4}, {"q": "{x}", "a": 10**5000}, {"q": "no"}]
    text = json.dumps(rows[:2])[:-1] + ', {"q": "{x}", "a": 1' + "0" * 5000 + "}, {}]"
    path.write_bytes(gzip.compress(text.encode()))
    options = {"template": "{{{q}}}: {a}", "spec": {"gold": "a"}, "limit": 3, "stop": ["]"]}
    one, two, three = problems_of(path, options)
    assert one.prompt == "{2+2}: 4"
    assert (one.spec, one.stop, one.dataset) == ({"gold": 4}, ("]",), "two")
    assert one.id == "two_" + one.id[4:]
    assert len(one.id) == 16
    assert two == replace(one, id=one.id + "-2")
    assert three.spec == {"gold": "1" + "0" * 5000}
    (chat,) = problems_of(
        _file(tmp_path, {"i": 7, "t": [{"role": "user", "content": "hi"}]}),
        {"prompt": "t", "id": "i", "tags": ["i"], "spec": ["i"], "name": "n"},
    )
    assert chat == Problem("n_7", (Message("user", "hi"),), "none", {"i": 7}, "n", tags={"i": 7})


def _file(folder, row):
    path = folder / "one.jsonl"
    path.write_text(f"\n{json.dumps(row)}\n\n")
    return path


@pytest.mark.parametrize(
    ("options", "more"),
    [
        (OPTIONS, {}),
        (OPTIONS | {"id": "n", "tags": ["n"], "spec": ["a"]}, {}),
        ({"template": "Q {q} {{", "id": "n", "limit": 5, "name": "x", "spec": {"gold": "a"}}, {}),
        (OPTIONS, {"split": {"heldout": 0.4, "seed": 3}}),
        (OPTIONS | {"stop": ["]"]}, {"most": 12}),
        (OPTIONS, {"rows": [*ROWS, ROWS[0], ROWS[0]]}),
    ],
)
def test_data_as_they_are_in_their_file(model, tmp_path, options, more):
    Run(model, tmp_path, options, **more).begin()


def changed(source, change):
    return replace(source, problems=tuple(change(list(source.problems))))


def another_spec(problems):
    return [replace(one, spec=problems[0].spec) for one in problems]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda some: some[:-1], "has 11 problems, and 12 are due; 1 are missing and 0"),
        (lambda some: some[::-1], "12 problems are in another order"),
        (another_spec, "11 of 12 problems are changed: .* has the spec"),
        (lambda some: [replace(some[0], stop=("x",)), *some[1:]], "1 of 12 .* has the stop"),
        (lambda some: [replace(some[0], prompt="?"), *some[1:]], "has the prompt '.'"),
    ],
)
def test_data_that_are_not_those_of_the_file(model, tmp_path, change, words):
    run = Run(model, tmp_path, OPTIONS)
    with pytest.raises(RunError, match=f"guard data: the problems of data.jsonl .*{words}"):
        run.begin(changed(run.source, change))


def test_the_held_out_part_is_trained_on(model, tmp_path):
    run = Run(model, tmp_path, OPTIONS, split={"heldout": 0.4})
    whole = Run(model, tmp_path, OPTIONS).source
    kept = {one.id for one in run.source.problems}
    assert 0 < len(kept) < 12
    with pytest.raises(RunError, match=rf"and {len(kept)} are due"):
        run.begin(changed(whole, lambda some: [one for one in some if one.id not in kept]))


def test_a_prompt_that_was_left_out_and_is_not_long(model, tmp_path):
    run = Run(model, tmp_path, OPTIONS, most=12)
    assert len(run.source.left_out) == 1
    first = run.source.problems[0].id
    fewer = replace(run.source, left_out=(*run.source.left_out, first))
    with pytest.raises(RunError, match=f"{first} was left out as too long"):
        run.begin(changed(fewer, lambda some: some[1:]))


def test_problems_that_change_on_their_way(model, tmp_path):
    run = Run(model, tmp_path, OPTIONS)
    one, other = run.source.problems[:2]
    guard = run.begin()
    guard.on_groups(GroupsScored(0, 0, (Group(one, (), 0),)))
    mixed = GroupsScored(0, 0, (Group(replace(one, spec=other.spec), (), 0),))
    with pytest.raises(RunError, match="has another spec than it was loaded with"):
        guard.on_groups(mixed)
    run.begin(sampler=object()).on_groups(mixed)  # a plugin's may


# -- given answers -------------------------------------------------------------------------------


def learn(run, guard, change=lambda rows: rows, step=2, parts=1, end=True):
    """Show a guard the given answers of a step, in micro-batches."""
    loss, given = object(), run.given
    term = SimpleNamespace(loss=loss, name="sft", demonstrations=given)
    trainer = SimpleNamespace(
        objective=SimpleNamespace(terms=(term,)),
        train=SimpleNamespace(num_iterations=1),
        ranks=SimpleNamespace(world=1),
    )
    view = StepView(trainer, (), step, step)
    rows = change(given.rows(step))
    for micro in micro_batches(rows, tokens_per_micro_batch=4096 // parts):
        batch = SimpleNamespace(mask_BT=micro.mask_BT)
        guard.given(
            view,
            SimpleNamespace(
                micro_batch=micro, losses=[(loss, batch, None)], normalizer=Normalizer(4, 9, 9)
            ),
        )
    if end:
        guard.end(view)


def test_given_answers_in_their_order(model, tmp_path):
    run = Run(model, tmp_path, OPTIONS)
    guard = run.begin()
    for step in range(7):  # the fourth begins the next epoch of 12 answers
        learn(run, guard, step=step, parts=1 + step % 3)


def swapped(rows):
    one, two, *rest = rows
    return [replace(one, token_ids=two.token_ids, loss_mask=two.loss_mask,
                    logprobs=two.logprobs), two, *rest]  # fmt: skip


def half_masked(rows):
    return [replace(one, loss_mask=(False, *one.loss_mask[1:])) for one in rows]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (swapped, "learns the answer .* none of the step's answers"),
        (lambda rows: [rows[0], *rows[:3]], "or one that it has had already"),
        (lambda rows: rows[:3], "1 of the step's answers for the loss sft are in no update"),
        (half_masked, "4 tokens of the given answers of sft are not in its loss mask"),
    ],
)
def test_given_answers_that_are_not_the_steps(model, tmp_path, change, words):
    run = Run(model, tmp_path, OPTIONS)
    with pytest.raises(RunError, match=f"guard data: .*{words}"):
        learn(run, run.begin(), change)


def test_given_answers_of_another_step(model, tmp_path):
    run = Run(model, tmp_path, OPTIONS)
    with pytest.raises(RunError, match="none of the step's answers"):
        learn(run, run.begin(), lambda rows: run.given.rows(0))
