"""The numbers of the plots, worked out by hand."""

import json
import math

import pytest

from plugins.rlvr_view.tests.reports.made_runs import make_run
from rlvr_core.record.rundir import RunFolder
from rlvr_core.record.speed import phase_rows
from rlvr_core.record.view import RunView
from rlvr_view.report import accounts, learning
from rlvr_view.report.described import described
from rlvr_view.report.findings import run_findings
from rlvr_view.report.plot import Plot, Series
from rlvr_view.report.plotly_figures import figure
from rlvr_view.report.records import Records, labels
from rlvr_view.report.thin import thin, width_of

Z2 = 3.8414588206941285  # the square of the normal distribution's 97.5% quantile


def wilson(right, n):
    centre = (right / n + Z2 / (2 * n)) / (1 + Z2 / n)
    half = math.sqrt(Z2 / n * (right / n * (1 - right / n) + Z2 / (4 * n))) / (1 + Z2 / n)
    return [pytest.approx(centre - half), pytest.approx(centre + half)]


@pytest.fixture
def records(runs):
    folder = make_run(runs)
    return Records(RunView(folder), folder.name)


def test_pass_rates_have_the_interval_of_their_groups(records):
    rate = next(iter(learning.learning([records])))
    (series,) = rate.series
    assert list(series.x) == list(range(8))
    assert list(series.y) == [0.5] * 4 + [1.0] * 4
    # groups whose completions agree: Wilson's interval of 1 and of 2 groups in 2
    assert [series.low[0], series.high[0]] == wilson(1, 2)
    assert [series.low[7], series.high[7]] == wilson(2, 2)


def test_kinds_are_compared_between_the_first_and_the_last_quarter(records):
    of_dataset, of_level = learning.kinds([records])
    assert of_dataset.places == ["sums"]
    first, last = of_level.series  # steps 0 and 1, and 6 and 7
    assert (list(first.y), list(first.x)) == (["easy", "hard"], [1.0, 0.0])
    assert (list(last.y), list(last.x)) == (["easy", "hard"], [1.0, 1.0])
    assert list(first.texts) == ["2 groups", "2 groups"]
    assert [first.low[1], first.high[1]] == wilson(0, 2)


def test_evaluations_have_the_interval_of_their_answers(records):
    *_, plot = learning.learning([records])
    (series,) = plot.series
    assert (list(series.x), list(series.y)) == ([0, 8], [0.3, 0.9])
    assert [series.low[1], series.high[1]] == wilson(9, 10)


def test_the_ledger_of_each_step(records):
    (plot,) = accounts.ledger([records])
    found = {series.name: list(series.y) for series in plot.series}
    assert found == {"trained": [3] * 8, "error": [1] * 8}


def test_time_by_phase_of_a_resumed_run(records):
    timing = records.view.folder.traces / "timing.jsonl"
    with timing.open("a") as file:  # step 7 again, slower, and one that no metrics are there of
        file.write('{"resumed": "2027-01-01"}\n')
        file.write('{"step": 7, "seconds": {"train": 4.0, "rollout": 1.0}}\n')
        file.write('{"step": 8, "seconds": {"train": 99.0}}\n{"step": ')
    totals = accounts.totals(records.timing)
    assert totals == {"train": 18.0, "rollout": 8.0, "train.forward": 3.5}
    assert list(phase_rows(totals)) == [
        ("train", 18.0, "69.2%"), ("train.forward", 3.5, "13.5%"), ("rollout", 8.0, "30.8%"),
    ]  # fmt: skip


def test_ages_are_shares_of_what_was_trained_on(records):
    lines = [json.loads(line) for line in records.view.folder.metrics.read_text().splitlines()]
    lines[0] |= {"staleness/trained/0": 1, "staleness/trained/1": 2, "staleness/stale/2": 7}
    lines[1] |= {"staleness/trained/1": 1}
    records.view.folder.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (plot,) = accounts.staleness([records])
    assert dict(zip(plot.series[0].x, plot.series[0].y, strict=True)) == {"0": 0.25, "1": 0.75}


def test_findings_are_counts_above_0(records):
    lines = [json.loads(line) for line in records.view.folder.metrics.read_text().splitlines()]
    for step, line in enumerate(lines):
        line |= {"canaries/wrong": float(step >= 3), "updates/skipped": 0.0, "ledger/error": 0}
    records.view.folder.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = {
        run_finding["metric"]: run_finding["steps"] for run_finding in run_findings(records.view)
    }
    assert found == {"canaries/wrong": [3, 4, 5, 6, 7]}


def test_a_number_that_is_not_finite_is_a_gap(records):
    lines = [json.loads(line) for line in records.view.folder.metrics.read_text().splitlines()]
    lines[5] |= {"reward/mean": None, "non_finite": {"reward/mean": "nan"}}
    records.view.folder.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert records.metric("reward/mean")[1][5] is None


def test_runs_in_folders_of_one_name_are_told_apart(tmp_path):
    paths = [tmp_path / place / "demo" for place in ("a", "b")]
    for path in paths:  # folders of runs have a random suffix, and may be renamed
        make_run(path.parent).path.rename(path)
    assert labels([RunView(RunFolder(path)) for path in paths]) == list(map(str, paths))


def test_long_series_keep_their_extremes():
    y = [0.0] * 10_000
    y[1234], y[7777] = 5.0, -3.0
    x, thinned = thin(list(range(10_000)), y, 100)
    assert len(x) <= 100
    assert (x[0], x[-1]) == (0, 9999)
    assert dict(zip(x, thinned, strict=True))[1234] == 5.0
    assert dict(zip(x, thinned, strict=True))[7777] == -3.0
    assert x == sorted(x)


@pytest.mark.parametrize(
    ("steps", "width"), [([], 1), ([4], 1), (range(300), 1), (range(301), 2), (range(5, 3005), 10)]
)
def test_steps_are_pooled_where_there_are_many(steps, width):
    assert width_of(list(steps)) == width


KINDS = {
    "lines": Series("a", [0, 1], [0.5, None], [0.4, None], [0.7, None]),
    "stack": Series("a", [0, 1], [3, 4]),
    "bars": Series("a", ["0", "1"], [0.25, 0.75]),
    "dots": Series("a", [0.5], ["easy"], [0.4], [0.7], texts=["2 groups"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_plot_is_valid_for_plotly(kind):
    graph_objects = pytest.importorskip("plotly.graph_objects")
    plot = Plot("p", "Title", "How to read it.", "x", "y", [KINDS[kind]], kind)
    graph_objects.Figure(figure(plot))  # refuses unknown keys and values


def test_intervals_are_distances_for_plotly_and_ends_in_the_table():
    plot = Plot("p", "Title", "", "x", "y", [KINDS["lines"]])
    (trace,) = figure(plot)["data"]
    assert trace["error_y"]["array"] == [pytest.approx(0.2), 0.0]
    assert trace["error_y"]["arrayminus"] == [pytest.approx(0.1), 0.0]
    assert described(plot).rows == [
        ("a", "0", "0.500 [0.400, 0.700]", ""),
        ("a", "1", "not finite", ""),
    ]


def test_labels_are_no_markup_and_no_fields_of_a_template():
    name = "<b>x</b> &lt; %{y} \x00"
    plot = Plot("p", "T", "c", "x", "y", [Series(name, [0], [1.0])])
    (trace,) = figure(plot)["data"]
    assert trace["meta"]["name"] == "&lt;b&gt;x&lt;/b&gt; &amp;lt; %{y} \\x00"
    assert "%{y}" not in trace["hovertemplate"].replace("%{y:.4~g}", "")
