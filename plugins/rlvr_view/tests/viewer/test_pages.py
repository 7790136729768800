"""The pages of rlvr view, of a run whose numbers can be worked out by hand.

It has 8 steps of 2 groups with 2 completions each. The easy one (p0-0, p1-0, …) always passes, the
hard one (p0-1, …) from step 4 on. One completion of each easy group was lost to an error.
"""

import base64
import hashlib
import json
import re

import numpy as np
import pytest

from plugins.rlvr_view.tests.reports.made_runs import make_run
from plugins.rlvr_view.tests.viewer.viewed import Viewed, draw, groups, keys
from rlvr_core.api import Completion, Group, Judged, Problem, Transcript, Turn, Verdict
from rlvr_core.data.jsonl import JsonLines
from rlvr_core.demonstrations import load_answers
from rlvr_core.record.jsonl import read_jsonl
from rlvr_core.record.recorder import Recorder
from rlvr_view.viewer.indexing import building
from tests.support.tables import table


@pytest.fixture
def run(runs):
    return make_run(runs)


def test_the_table_of_runs_is_sorted_and_filtered(runs, viewed):
    make_run(runs, "short", steps=4)
    make_run(runs, "long", steps=8, now=1)
    page = viewed.get("/")
    assert page.index("long-2") < page.index("short-2"), "the newest comes first"
    assert "2 of 2 runs" in page
    page = viewed.get("/?sort=steps&order=up")
    assert page.index("short-2") < page.index("long-2")
    page = viewed.get("/?text=LONG")
    assert "1 of 2 runs" in page
    assert "short-2" not in page
    assert "0 of 2 runs" in viewed.get("/?outcome=failed")
    # reward/mean is step / 10: of the last 10 of 8 steps 0.35
    assert re.search(r"<td>8</td>\s*<td>0\.350</td>", viewed.get("/?text=long"))
    assert "sorted by" in viewed.get("/?sort=colour", status=400)


def test_the_page_of_a_run_has_its_report(run, viewed):
    at = viewed.read(run)
    page = viewed.get(at)
    assert "8 of 8" in page
    assert "16 groups" in page
    made = json.loads(viewed.get(f"{at}/report"))
    # of the groups of steps 0 to 3 half pass, of the later ones all
    rates = made["figures"]["pass-rate"]["data"]
    assert [trace["y"] for trace in rates if "y" in trace and trace["mode"] != "lines"][-1] == (
        [0.5] * 4 + [1.0] * 4
    )
    assert 'id="h-ledger"' in made["body"]
    assert 'href="#guards"' in made["links"]


FILTERS = table(__file__, "filters")


def test_groups_are_filtered(run, viewed):
    at = viewed.read(run)
    found = [(query, groups(viewed.get(f"{at}/rollouts?{query}"))) for query, _ in FILTERS]
    assert found == FILTERS


def test_a_filter_that_is_none_is_said(run, viewed):
    at = viewed.read(run)
    for query in ("step_from=x", "reward_to=many", "sort=beauty", "page=1.5"):
        told = viewed.get(f"{at}/rollouts?{query}", status=400)
        assert query.partition("=")[2] in told


def test_tokens_have_the_gaps_that_the_run_recorded(run, viewed):
    """The key is the hash of [[1], [2]], what each completion was sampled from and is."""
    at = viewed.read(run)
    key = hashlib.blake2b(b"[[1], [2]]", digest_size=8).hexdigest()
    old, new = (base64.b64encode(np.array([gap], "<f2").tobytes()).decode() for gap in (9.0, 0.25))
    lines = [
        {"step": 1, "gaps": {key: old}},
        {"step": 2, "gaps": {key: old}},
        {"step": 2, "gaps": {key: new}},  # the step was made again
        {"step": 3, "gaps": {key: "?", "other": old}},
        {"step": 4, "gaps": {key: new + new}},
    ]
    path = run.traces / "gaps.jsonl"
    rows = [json.dumps(line) + "\n" for line in lines]
    rows[2] = rows[2].replace(" ", "")  # runs of earlier versions have spaces
    path.write_text("".join(rows) + '{"step":2,"gaps":{')
    page = viewed.get(f"{at}/groups/2.5")
    assert page.count("trainer - engine +0.25 nats") >= 2
    assert len(re.findall(r'class="t [^"]*\bg4\b[^"]*"', page)) == 3  # one of the key
    assert "no gap between" not in page
    for other in ("3.7", "4.9", "5.11"):  # damaged, of another length, not there
        page = viewed.get(f"{at}/groups/{other}")
        assert "trainer - engine +" not in page
        assert "no gap between" in page


def test_groups_are_sorted_and_paged(runs, viewed):
    long = make_run(runs, "long", steps=30)
    at = viewed.read(long)
    first = viewed.get(f"{at}/rollouts")
    assert "60 groups, page 1 of 2" in first
    assert keys(first)[0] == "29.59"
    second = keys(viewed.get(f"{at}/rollouts?page=2"))
    assert len(second) == 10
    assert second[-1] == "0.0"
    assert keys(viewed.get(f"{at}/rollouts?sort=oldest"))[:2] == ["0.0", "0.1"]
    lowest = keys(viewed.get(f"{at}/rollouts?sort=reward, lowest"))[:15]
    assert lowest == [f"{step}.{2 * step + 1}" for step in range(15)]


def test_a_group_is_shown_side_by_side_with_its_neighbours(run, viewed):
    at = viewed.read(run)
    page = viewed.get(f"{at}/groups/2.5?answer=wrong&sort=oldest")
    assert page.count('<section class="answer') == 2
    assert "<bdi>hard</bdi>" in page
    assert f'rel="prev" href="{at}/groups/1.3?answer=wrong&amp;sort=oldest"' in page
    assert f'rel="next" href="{at}/groups/3.7?' in page
    assert "no gap between trainer and engine was recorded by token" in page
    assert "the run&#39;s tokenizer is not on this machine" in page.lower()
    assert "[2]" in page, "tokens without a tokenizer are ids"
    assert "log-prob -0.100, probability 90.5%" in page
    # one completion of the easy group has the fate that was looked for
    page = viewed.get(f"{at}/groups/2.4?fate=error")
    assert page.count("does not fit the filter") == 1
    viewed.get(f"{at}/groups/77.1", status=404)


def test_a_problem_is_compared_across_steps(run, viewed):
    draw(run, 8, 16, "again", ["it is 5, I think", "no"], [0.0, 0.0])
    draw(run, 9, 18, "again", ["no", "it is 4, I think"], [0.0, 1.0])
    draw(run, 10, 20, "again", ["it is 4"], [1.0])
    at = viewed.read(run)
    page = viewed.get(f"{at}/problem?id=again")
    assert "Drawn 3 times" in page
    assert "it is <del>5</del><ins>4</ins>, I think" in page
    assert "it is 4<del>, I think</del>" in page
    assert page.index("step 8") < page.index("step 9") < page.index("step 10")
    first = viewed.get(f"{at}/problem?id=again&which=first")
    assert "<del>it is 5, I think</del><ins>no</ins>" in first.replace("</del><del>", "")
    viewed.get(f"{at}/problem?id=never", status=404)


def test_turns_and_tool_calls_of_a_conversation_are_shown(run, viewed):
    call = '<tool_call>\n{"name": "count", "arguments": {"of": "hens"}}\n</tool_call>'
    turns = (Turn("assistant", call, 2), Turn("tool", "42", 1), Turn("assistant", "It is 42.", 1))
    transcript = Transcript("env/lookup", turns, "done", counts={"tool_calls": 1.0})
    completion = Completion(
        (1,), (5, 6, 7, 8), (-0.1,) * 4, (True, True, False, True), "It is 42.", "stop",
        transcript=transcript,
    )  # fmt: skip
    member = Judged(completion, {"exact": Verdict(1.0, passed=True)}, 1.0, True)
    group = Group(Problem("hens", "How many?", "exact", {}, "env/lookup"), (member,), 8)
    with Recorder(run) as recorder:
        recorder.rollout(8, 8, group, "How many?", ["trained"], [1.0], 16)
    at = viewed.read(run)
    page = viewed.get(f"{at}/groups/8.16")
    assert re.findall(r'class="role role-\w+">([\w ]+)<', page) == [
        "assistant", "tool", "assistant", "token ids",
    ]  # fmt: skip
    assert "<code>count(of=&#39;hens&#39;)</code>" in page
    assert page.count('class="t s1 out"') == 1, "the tool's token is out of the loss"
    assert groups(viewed.get(f"{at}/rollouts?text=arguments")) == 1, "every turn is searched"


def test_branches_of_a_conversation_are_shown_as_such(run, viewed):
    def said(*turns):
        return Transcript("env/agent", tuple(Turn(*turn) for turn in turns), "done")

    aside = Completion(
        (4,), (9,), (-0.1,), (True,), "Aside.", "stop",
        transcript=said(("user", "Ask aside.", 0), ("assistant", "Aside.", 1)),
    )  # fmt: skip
    again = Completion(
        (1,), (5, 7), (-0.1,) * 2, (False, True), "Again.", "stop",
        transcript=said(("assistant", "First.", 1), ("assistant", "Again.", 1)),
    )  # fmt: skip
    completion = Completion(
        (1,), (5, 6), (-0.1,) * 2, (True,) * 2, "Last.", "stop",
        transcript=said(("assistant", "First.", 1), ("assistant", "Last.", 1)),
        branches=(aside, again),
    )  # fmt: skip
    member = Judged(completion, {"exact": Verdict(1.0, passed=True)}, 1.0, True)
    group = Group(Problem("hens", "How many?", "exact", {}, "d"), (member,), 8)
    with Recorder(run) as recorder:
        recorder.rollout(8, 8, group, "How many?", ["trained"], [1.0], 16)
    page = viewed.get(f"{viewed.read(run)}/groups/8.16")
    assert re.findall(r'class="role role-\w+">([\w ]+)<', page) == [
        "assistant", "assistant", "token ids",
        "branch 1 of 2", "user", "assistant", "token ids",
        "branch 2 of 2", "assistant", "assistant", "token ids",
    ]  # fmt: skip
    assert page.index("Last.") < page.index("Ask aside.") < page.index("Again.")
    assert page.count('class="t s1 out"') == 1, "the shared turn is context in the second branch"


def test_a_selection_is_exported_as_recorded(run, viewed):
    at = viewed.read(run)
    answer = viewed.client.get(f"{at}/export?fate=error&step_from=6")
    assert "attachment" in answer.headers["content-disposition"]
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [(line["step"], line["draw_index"]) for line in lines] == [(6, 12), (7, 14)]
    recorded = {line["draw_index"]: line for line in read_jsonl(run.traces / "rollouts.jsonl")}
    for line in lines:
        [one] = line["completions"]
        assert one == {"sample": 1, **recorded[line["draw_index"]]["completions"][1]}
    viewed.get(f"{at}/export?kind=exe", status=400)


def test_answers_to_imitate_are_read_by_the_data_set_and_sft(run, viewed, tmp_path):
    draw(run, 8, 16, "again", ["4", "5", "4"], [1.0, 0.0, 1.0], prompt="Say 4.\n")
    at = viewed.read(run)
    answer = viewed.client.get(f"{at}/export?kind=sft&answer=right&step_from=8")
    (tmp_path / "answers.jsonl").write_bytes(answer.content)
    options = {"path": str(tmp_path / "answers.jsonl"), "prompt": "prompt", "id": "id"}
    loader = JsonLines(JsonLines.Config(**options, verifier="core/exact"))
    found = load_answers(loader, "answer", 0, "answers.jsonl")
    assert [(one.id, one.prompt, said) for one, said in found] == [
        ("again@8.16/0", "Say 4.\n", "4")
    ]


def test_nothing_is_exported_of_a_run_that_is_still_being_read(run, viewed):
    with building(viewed.cache.file(run.path)):  # as another viewer does
        page = viewed.get(f"/runs/{run.name}/rollouts")
        assert "0 groups in what was read so far" in page
        assert "still being read (0%)" in viewed.get(f"/runs/{run.name}/export", status=409)
    assert groups(viewed.get(f"{viewed.read(run)}/rollouts")) == 16
    assert viewed.get(f"/runs/{run.name}/export").count("\n") == 16


def test_pages_say_when_records_have_changed(run, viewed):
    at = viewed.read(run)
    before = viewed.get(f"{at}/state"), viewed.get("/state")
    assert (viewed.get(f"{at}/state"), viewed.get("/state")) == before
    with Recorder(run) as recorder:
        recorder.metrics(8, 8, {"reward/mean": 0.9})
    after = viewed.get(f"{at}/state"), viewed.get("/state")
    assert all(one != two for one, two in zip(before, after, strict=True))


def test_damaged_runs_are_named(runs, viewed):
    whole, cut = make_run(runs, "whole"), make_run(runs, "cut", now=1)
    cut.manifest.write_text('{"outcome": "fin')
    cut.metrics.write_bytes(cut.metrics.read_bytes()[:-20])
    cut.resolved.unlink()
    with (cut.traces / "rollouts.jsonl").open("ab") as file:
        file.write(b'[1, 2]\n{"step": 9, "completions": [')
    page = viewed.get("/")
    assert "2 of 2 runs" in page
    assert page.count('class="fault"') == 1
    at = viewed.read(cut)
    assert "1 lines of the rollouts are no groups" in viewed.get(at)
    assert groups(viewed.get(f"{at}/rollouts")) == 16
    assert json.loads(viewed.get(f"{at}/report"))["figures"]
    (whole.traces / "rollouts.jsonl").unlink()
    assert "No rollouts were found" in viewed.get(f"{viewed.read(whole)}/rollouts")


def test_records_of_wrong_types_are_said_on_the_page(run, viewed):
    line = json.loads((run.traces / "rollouts.jsonl").read_text().splitlines()[0])
    line |= {"step": 20, "draw_index": 2**70, "problem_id": ["odd"], "tags": [1]}
    one = {"passed": {}, "reward": 2**2000, "verdicts": {"a": 1, "b": {"score": []}}, "text": 5}
    odd = {"token_ids": {}, "transcript": {"turns": [1, {}]}, "branches": [1, {"token_ids": {}}]}
    line["completions"] = [one | {"branches": 7}, None, odd]
    with (run.traces / "rollouts.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n" + json.dumps({**line, "step": 2**70}) + "\n")
    with run.metrics.open("a") as file:
        file.write(json.dumps({"step": 9, "ledger/drawn": {"a": 1}}) + "\n")
    at = viewed.read(run)
    assert groups(viewed.get(f"{at}/rollouts")) == 17
    page = viewed.get(f"{at}/groups/20.x")
    assert page.count('<section class="answer') == 2
    assert "its records are damaged" in viewed.get(at)
    assert "cannot be made" in viewed.get(f"{at}/report", status=500)
    assert viewed.get(f"{at}/export").count("\n") == 17


def test_one_runs_folder_can_be_shown_alone(runs, tmp_path):
    run = make_run(runs)
    viewed = Viewed(run.path, tmp_path / "cache")
    with viewed.client:
        assert "1 of 1 runs" in viewed.get("/")
        assert groups(viewed.get(f"{viewed.read(run)}/rollouts")) == 16
        viewed.get("/runs/other", status=404)
