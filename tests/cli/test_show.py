import json
import re
from dataclasses import dataclass

import pytest
from click.testing import CliRunner

from rlvr_core.api import Completion, EvalReport, Group, Judged, Problem, Verdict
from rlvr_core.cli.main import main
from rlvr_core.cli.plot import plot
from rlvr_core.cli.show_command import show
from rlvr_core.guards.parity import Parity
from rlvr_core.record.ledger import Ledger
from rlvr_core.record.manifest import Manifest
from rlvr_core.record.metrics import run_glossary
from rlvr_core.record.recorder import Recorder
from rlvr_core.record.results import write_results
from rlvr_core.record.rundir import RunFolder

HOSTILE = "\x1b]0;owned\x07\x1b[2J[red]x[/red] \u202e `rm` | <b>&\r\n  outcome  finished\x9b31m"


@dataclass
class Sampled:
    prompt_text: str
    group: Group


def group(problem_id, text, passed):
    problem = Problem(problem_id, "2+2=", "exact", {}, "sums")
    members = tuple(
        Judged(
            Completion((1,), (2,), (-0.1,), (True,), f"{text} {i}", "stop"),
            {"exact": Verdict(float(passed), passed=passed)},
            float(passed),
            passed,
        )
        for i in range(2)
    )
    return Group(problem, members, 0)


def evaluate(recorder, step, temperature, accuracy, text):
    task = "math/sums" if temperature else "math/sums-greedy"
    sampled = [Sampled("2+2=", group(f"p{i}", f"{text}{i}", bool(step))) for i in range(10)]
    recorder.evaluation(
        step, step, task, temperature, EvalReport({"other": 9.0, "accuracy": accuracy}, 10), sampled
    )


def make_run(root, *, text="four"):
    folder = RunFolder.create(
        root, "demo", config_text="", resolved={"train": {"steps": 4}}, now=1_800_000_000
    )
    manifest = Manifest.start(folder, name="demo", command=["rlvr", "run"], plugins={})
    ledger = Ledger()
    with Recorder(folder, glossary=run_glossary(Parity)) as recorder:
        evaluate(recorder, 0, 1.0, 0.25, "before ")
        evaluate(recorder, 0, 0.0, 0.5, "greedy ")
        for step in range(4):
            ledger.draw(4)
            ledger.settle("trained", 2)
            ledger.settle("zero_variance", 2, "all_passed")
            metrics = {
                "reward/mean": 0.2 * step,
                "pass_rate": 0.1 * step,
                "tokens/completion": 100,
                **ledger.step_line(),
            }
            if step < 2:
                metrics |= {"parity/k3": 1e-6 * (step + 1), "parity/bias": -1e-5 / (step + 1)}
            recorder.metrics(step, step + 1, metrics)
            recorder.timing(step, step + 1, {"train": 1.5, "rollout": 0.5, "train.loss": 9.0})
            recorder.rollout(
                step, step, group("p1", text, True), text, ["trained"] * 2, [1.0, -1.0], step
            )
        evaluate(recorder, 2, 1.0, 0.75, "middle ")
        evaluate(recorder, 4, 1.0, 0.875, "after ")
        evaluate(recorder, 4, 0.0, 1.0, "greedy after ")
    manifest.finish("finished", steps=4)
    return folder


@pytest.fixture
def run_show(tmp_path):
    def run(*words):
        result = CliRunner().invoke(show, [*words, "--runs-dir", str(tmp_path)])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.output

    return run


def test_where_the_time_of_a_step_went(tmp_path, run_show):
    make_run(tmp_path)
    shown = run_show("last").split("time of a step\n")[1].split("\n\n")[0]
    lines = [line.split() for line in shown.splitlines()]
    # 1.5 of 2 s in training; train.loss is a part of it
    assert lines == [
        ["train", "1.500", "s", "75.0%"],
        ["loss", "9.000", "s", "450.0%"],
        ["rollout", "0.500", "s", "25.0%"],
    ]


def test_times_of_steps_that_a_resumption_cut_away_do_not_count(tmp_path, run_show):
    folder = make_run(tmp_path)
    lines = folder.metrics.read_bytes().splitlines(keepends=True)
    folder.metrics.write_bytes(b"".join(lines[:3]))  # timing.jsonl has step 3 still, 2 s of it
    summary = json.loads(run_show("last", "--json"))
    assert summary["step_seconds"] == pytest.approx(6.0)
    assert summary["speed"]["seconds"] == {"train": 1.5, "rollout": 0.5, "train.loss": 9.0}
    assert summary["tokens_per_second"] == pytest.approx(50.0)


def test_json_has_what_machines_read(tmp_path, run_show):
    folder = make_run(tmp_path)
    summary = json.loads(run_show("last", "--json"))
    assert summary["name"] == "demo"
    assert summary["folder"] == str(folder.path)
    assert summary["outcome"] == "finished"
    assert (summary["steps"], summary["planned_steps"]) == (4, 4)
    assert summary["heldout"] == {
        "task": "math/sums",
        "temperature": 1.0,
        "metric": "accuracy",
        "n": 10,
        "before": 0.25,  # these are not of the answers: an interval would be of something else
        "before_interval": None,
        "after": 0.875,
        "after_interval": None,
        "greedy": {
            "before": 0.5,
            "before_interval": None,
            "after": 1.0,
            "after_interval": [pytest.approx(10 / 13.8414588), 1.0],  # 10 of 10, z^2 = 3.8414588
        },
    }
    assert summary["parity"] == {"k3": 2e-6, "bias": 1e-5}
    assert summary["ledger"] == {
        "balanced": True, "drawn": 16, "trained": 8, "zero_variance": 8, "stale": 0,
        "too_long": 0, "truncated": 0, "unscorable": 0, "error": 0, "in_flight": 0,
        "zero_variance/all_failed": 0, "zero_variance/all_passed": 8,
    }  # fmt: skip
    assert summary["step_seconds"] == pytest.approx(8.0)
    assert summary["tokens_per_second"] == pytest.approx(50.0)
    assert summary["curve"]["reward"] == pytest.approx([0.0, 0.2, 0.4, 0.6])
    assert summary["curve"]["evals"][0]["step"] == [0, 2, 4]
    assert summary["notes"] == []
    assert "rollouts" not in summary
    more = json.loads(run_show("demo", "--json", "--rollouts", "2", "--metric", "parity/k3"))
    assert [r["step"] for r in more["rollouts"]] == [2, 3]
    assert more["metrics"]["parity/k3"]["value"] == [1e-6, 2e-6, None, None]


def test_held_out_accuracy_has_the_interval_that_eval_gives(tmp_path, run_show):
    """Wilson's for 0 and 8 of 10; with two answers a problem clustered (test_intervals.py)."""
    folder = RunFolder.create(tmp_path, "demo", config_text="", resolved={})

    def answers(*outcomes):
        return [
            Sampled("?", Group(Problem(f"p{i}", "?", "v", {}, "sums"), members(each), 0))
            for i, each in enumerate(outcomes)
        ]

    def members(outcomes):
        done = Completion.from_text("4")
        return tuple(Judged(done, {}, None, passed) for passed in outcomes)

    with Recorder(folder) as recorder:
        for step, accuracy, found in (
            (0, 0.0, answers(*[[False]] * 10, [None])),  # without an outcome: no problem of these
            (4, 0.8, answers(*[[True]] * 8, *[[False]] * 2)),
        ):
            report = EvalReport({"accuracy": accuracy}, 10)
            recorder.evaluation(step, step, "math/sums", 1.0, report, found)
    heldout = json.loads(run_show("last", "--json"))["heldout"]
    assert heldout["before_interval"] == [0.0, pytest.approx(3.8414588 / 13.8414588)]
    assert heldout["after_interval"] == pytest.approx([0.490162, 0.943318], abs=1e-6)
    told = "0.000 (0.000 to 0.278) -> 0.800 (0.490 to 0.943) accuracy on 10 problems of math/sums"
    assert f"{told}, temperature 1, 95% intervals" in run_show("last")
    with Recorder(folder) as recorder:
        twice = answers([True, False], [True, True], [False, False], [True, False])
        recorder.evaluation(5, 5, "math/sums", 1.0, EvalReport({"accuracy": 0.5}, 4), twice)
    (folder.evals / "math_sums-t1-step000000.jsonl").unlink()
    heldout = json.loads(run_show("last", "--json"))["heldout"]
    assert (heldout["before"], heldout["before_interval"]) == (0.0, None)
    assert heldout["after_interval"] == pytest.approx([0.155407, 0.844593], abs=1e-5)


def test_report_for_people(tmp_path, run_show):
    make_run(tmp_path)
    shown = run_show("last")
    assert "\x1b" not in shown
    for told in (
        "outcome     finished",
        "steps       4 of 4",
        "held out    0.250 -> 0.875 accuracy on 10 problems of math/sums, temperature 1",
        "greedy      0.500 -> 1.000 (0.722 to 1.000)",
        "parity      trainer - engine log-prob: k3 2e-06, bias 1e-05",
        "ledger      balances: 16 drawn, 8 trained",
        "time        8.0 s in steps, 50 completion tokens/s",
        "learning curve",
        "⠒ reward",
        "math/sums accuracy",
        "all passed",
        "| before 0 0",
        "| after 0 0",
        "step 4, ",  # the record says 3: people count from 1, as the progress lines do
        "[right] reward 1 advantage 1 trained",
    ):
        assert told in shown, told
    assert shown.count("before [wrong]") == 3


def test_an_unbalanced_ledger_is_said_loudly(tmp_path, run_show):
    folder = make_run(tmp_path)
    text = folder.metrics.read_text().replace('"ledger/trained":2', '"ledger/trained":1', 1)
    folder.metrics.write_text(text)
    assert json.loads(run_show("last", "--json"))["ledger"]["balanced"] is False
    assert "DOES NOT BALANCE" in run_show("last")


def test_hostile_model_output_does_nothing(tmp_path, run_show):
    folder = make_run(tmp_path, text=HOSTILE)
    for shown in (
        run_show("last", "--rollouts", "4"),
        run_show("last", "--json", "--rollouts", "4"),
    ):
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", shown)
    shown = run_show("last")
    assert "[red]x[/red]" in shown
    assert shown.count("\n  outcome") == 1  # a model's line break cannot fake one of ours
    manifest = Manifest.read(folder)
    manifest.finish("failed", steps=4, error=HOSTILE)
    page = write_results(folder).read_text()
    assert "<b>" not in page.replace("\\<b", "")
    assert len([line for line in page.splitlines() if line.startswith("| outcome")]) == 1
    assert "\x1b" not in page


def test_results_page_is_filled_from_records(tmp_path):
    page = write_results(make_run(tmp_path)).read_text()
    table = page[page.index("| fate | completions |") :].splitlines()[2:]
    counts = [line.strip("| ").split(" | ")[1] for line in table if line.startswith("|")]
    assert sum(map(int, counts[1:9])) == int(counts[0]) == 16  # the fates of all that was drawn
    for told in ("# demo", "| outcome | finished |", "| steps | 4 of 4 |", "0.250 -"):
        assert told in page
    assert "| math/sums (temperature 1) | accuracy | 4 | 0.8750 |" in page
    assert "| zero\\_variance/all\\_passed | 8 |" in page


@pytest.mark.parametrize(
    ("lose", "told"),
    [
        (["run.json"], "run.json cannot be read"),
        (["metrics.jsonl"], "metrics.jsonl is missing"),
        (["traces", "evals", "checkpoints", "resolved.yaml", "config.yaml"], "outcome"),
        (
            ["run.json", "traces", "evals", "checkpoints", "resolved.yaml", "metrics.jsonl"],
            "unknown",
        ),
    ],
)
def test_half_broken_folders_are_shown_with_a_word(tmp_path, run_show, lose, told):
    folder = make_run(tmp_path)
    for name in lose:
        path = folder.path / name
        if path.is_dir():
            for child in path.iterdir():
                child.unlink()
            path.rmdir()
        else:
            path.unlink()
    assert told in run_show("last")
    json.loads(run_show("last", "--json"))


GARBAGE = ['{"step": 0', '{"step": "x"}', "[]", "null", '{"step": 1, "reward/mean": "nan"}', "\0"]


def test_garbage_in_every_record_is_survived(tmp_path, run_show):
    folder = make_run(tmp_path)
    records = [folder.metrics, folder.evals / "index.jsonl", *folder.traces.glob("*.jsonl")]
    for record in records:
        with record.open("a") as file:
            file.write("\n".join(GARBAGE) + "\n")
    assert "finished" in run_show("last")
    for record in records:
        record.write_text("\n".join(GARBAGE) + "\n")
    folder.resolved.write_text("{: :")
    assert "finished" in run_show("last")


def test_a_killed_run_is_told_from_a_running_one(tmp_path, run_show):
    folder = make_run(tmp_path)
    manifest = Manifest.read(folder)
    manifest.update(outcome="running")
    assert json.loads(run_show("last", "--json"))["outcome"] == "running"
    manifest.update(process=manifest.fields["process"] | {"created": 1.0})
    summary = json.loads(run_show("last", "--json"))
    assert summary["outcome"] == "interrupted"
    assert "its process ended without a record" in summary["notes"][0]
    manifest.update(process=manifest.fields["process"] | {"host": "elsewhere"})
    summary = json.loads(run_show("last", "--json"))
    assert summary["outcome"] == "running"
    assert "elsewhere" in summary["notes"][0]


def test_only_a_greedy_task_and_no_task(tmp_path, run_show):
    folder = RunFolder.create(tmp_path, "greedy", config_text="", resolved={})
    assert "heldout" not in json.loads(run_show("last", "--json"))
    with Recorder(folder) as recorder:
        evaluate(recorder, 0, 0.0, 0.5, "a")
    heldout = json.loads(run_show("last", "--json"))["heldout"]
    assert (heldout["before"], heldout["after"]) == (0.5, None)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["demmo"], ["did you mean: demo-"]),
        (["last", "--metric", "reward/men", "--metric", "pas_rate"], ["reward/mean", "pass_rate"]),
    ],
)
def test_errors_name_what_there_is(tmp_path, capsys, words, told):
    make_run(tmp_path)
    assert main(["show", *words, "--runs-dir", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert all(one in err for one in told)


def test_plot_draws_what_there_is():
    assert plot({}) == ""
    assert plot({"a": ([0, 1], [None, float("nan")])}) == ""
    one = plot({"a": ([3], [7.5])})
    assert "a" in one.splitlines()[-1]
    shown = plot({"up": (range(50), [i / 50 for i in range(50)]), "eval": ([0, 50], [0.0, 1.0])})
    assert "\x1b" not in shown
    assert "1.00" in shown
    assert shown.splitlines()[-1].split() == ["step", "⠒", "up", "x", "eval"]
    assert sum(row.count("x") for row in shown.splitlines()[:-1]) == 2
    assert max(map(len, shown.splitlines())) <= 76
    for row in shown.splitlines():
        if set(row.split()) >= {"0", "10", "50"}:
            break
    else:
        raise AssertionError(f"no whole steps on the axis:\n{shown}")
