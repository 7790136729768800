"""The command, the page as text."""

import base64
import hashlib
import json
import re
import shutil
import sys
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner

from plugins.rlvr_view.tests.reports.made_runs import make_run
from rlvr_core.api import ConfigError, MachineError, RunError
from rlvr_view.report.command import report
from rlvr_view.report.page import embedded

pytest.importorskip("plotly")

HOSTILE = "</script><script>owned()</script><img src=x onerror=owned()><!-- \x00\x1b[2J\u202e\u2028"


@pytest.fixture
def make_report(tmp_path, runs):
    def make(*words):
        out = tmp_path / "report.html"
        result = CliRunner().invoke(
            report, [*words, "--out", str(out), "--runs-dir", str(runs)], catch_exceptions=False
        )
        assert result.exit_code == 0, result.output
        return out.read_text(encoding="utf-8")

    return make


class Page(HTMLParser):
    """The elements of a page, the text of its scripts, and its other text."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.scripts, self.texts, self.policy = [], [], [], ""
        self._script = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"]
        if tag == "script":
            self.scripts.append([dict(attrs).get("type"), ""])
            self._script = self.scripts[-1]

    def handle_endtag(self, tag):
        if tag == "script":
            self._script = None

    def handle_data(self, data):
        if self._script is None:
            self.texts.append(data)
        else:
            self._script[1] += data

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


def test_one_run(make_report, runs):
    folder = make_run(runs)
    page = Page(make_report("demo"))
    assert folder.name in page.text
    for words in (
        "8 of 8",
        "balances: 32 drawn, 24 trained",
        "24 (75.0%)",  # trained, in the ledger
        "0.300 [0.108, 0.603]",  # Wilson's interval of 3 of 10
        "+0.600",
        "0.0312",  # p of 6 problems of 6
        "Mean shaped reward of all scored completions drawn.",  # a metric explained
    ):
        assert words in page.text
    data = json.loads(next(text for kind, text in page.scripts if kind == "application/json"))
    assert {"pass-rate", "ledger-1", "timing-1", "metric-reward-mean"} <= data.keys()
    drawn = {attrs["data-plot"] for _, attrs in page.elements if "data-plot" in attrs}
    asked = {attrs["data-metric"] for _, attrs in page.elements if "data-metric" in attrs}
    assert drawn | asked == data.keys()


def test_what_a_run_warned_about(make_report, runs):
    folder = make_run(runs)
    fields = json.loads(folder.manifest.read_text())
    fields["warnings"] = [
        {"id": "preflight data/copies", "step": None, "text": "5 of 9 <b>copies</b>"},
        {"id": "guard canaries", "step": 2, "text": "the verifier is lax"},
    ]
    folder.manifest.write_text(json.dumps(fields))
    page = Page(make_report("demo"))
    assert "preflight data/copies: 5 of 9 <b>copies</b>" in page.text
    assert "guard canaries (step 3): the verifier is lax" in page.text


def test_several_runs_are_compared(make_report, runs):
    one, two = make_run(runs, "one"), make_run(runs, "two", lr=0.2, last=3)
    page = Page(make_report("one", "two"))
    assert f"{two.name} against {one.name}" in page.text
    assert "train.lr 0.1 0.2" in page.text
    assert "run.name" not in page.text  # it has no effect on a run
    assert "0, 6" in page.text  # problems that rose and fell
    data = json.loads(next(text for kind, text in page.scripts if kind == "application/json"))
    named = [trace["name"] for trace in data["reward"]["data"]]
    assert named == [one.name, two.name]


def test_nothing_in_the_page_is_loaded_and_only_its_own_scripts_may_run(make_report, runs):
    make_run(runs)
    page = Page(make_report("demo"))
    for tag, attrs in page.elements:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base", "form")
        assert not {"src", "style"} & attrs.keys()
        assert all(not name.startswith("on") for name in attrs)
        assert attrs.get("href", "#").startswith("#")
    code = [text for kind, text in page.scripts if kind is None]
    assert len(code) == 2
    hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in code]
    allowed = " ".join(f"'sha256-{hashe}'" for hashe in hashes)
    assert f"script-src {allowed};" in page.policy
    assert page.policy.startswith("default-src 'none';")


def test_what_a_model_or_a_data_set_wrote_is_text(make_report, runs):
    plain = Page(make_report(str(make_run(runs, "plain").path)))
    folder = make_run(runs, "hostile", text=HOSTILE + "y" * 1_000_000, dataset=HOSTILE)
    hostile = make_report(str(folder.path))
    page = Page(hostile)
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in plain.elements]
    assert "</script><script>owned()</script><img src=x onerror=owned()>" in page.text
    assert r"\x00\x1b[2J\u202e\u2028" in page.text
    assert "characters…]" in page.text  # of the long line the ends
    assert len(hostile) < 6_000_000  # most of it plotly
    assert not re.search("[\x00\x1b\u202e\u2028]", hostile)


def test_embedded_json_cannot_end_its_element():
    value = {"<script>": [HOSTILE, "\ud800", "&lt;", 1.5, None]}
    text = embedded(value)
    assert not re.search("[<>&\u2028\u2029]", text)
    assert text.isascii()
    assert json.loads(text) == value
    with pytest.raises(ValueError, match="JSON"):
        embedded({"x": float("nan")})


@pytest.mark.parametrize("keep", ["metrics.jsonl", "resolved.yaml", "run.json", "traces"])
def test_a_folder_with_a_part_of_the_records_gives_a_page_of_it(make_report, runs, keep):
    folder = make_run(runs)
    for path in folder.path.iterdir():
        if path.name != keep:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    page = Page(make_report(str(folder.path)))
    assert "Outcome" in page.text
    if keep != "metrics.jsonl":
        assert "metrics.jsonl is missing: no numbers of steps" in page.text


def test_damaged_files_give_a_page_of_the_rest(make_report, runs):
    folder = make_run(runs)
    for name in ("run.json", "resolved.yaml", "traces/timing.jsonl", "evals/index.jsonl"):
        (folder.path / name).write_bytes(b'{"step": \xff\x00\n[1]\n"x"\n{"a": ')
    with folder.metrics.open("a") as file:
        file.write('{"step": "x"}\n{"step": 9, "lr": "high", "pass_rate": null}\nnull\n{"step')
    page = Page(make_report(str(folder.path)))
    assert "unknown" in page.text
    assert "Pass rate in training" in page.text


def test_an_error_is_shown_with_its_traceback(make_report, runs):
    folder = make_run(runs)
    manifest = json.loads(folder.manifest.read_text())
    failed = {"outcome": "failed", "error": "the <engine> died", "traceback": "File x, line 7"}
    folder.manifest.write_text(json.dumps(manifest | failed))
    page = Page(make_report("demo"))
    assert "the <engine> died" in page.text
    assert "File x, line 7" in page.text


def invoke(*words):
    return CliRunner().invoke(report, list(words), catch_exceptions=False)


def test_an_out_that_cannot_be_is_refused_before_anything_is_read(tmp_path):
    with pytest.raises(ConfigError, match="there is no folder") as missing:
        invoke("nothing", "--out", str(tmp_path / "no" / "r.html"))
    assert f"mkdir -p '{tmp_path / 'no'}'" in str(missing.value)
    with pytest.raises(ConfigError, match="is a folder"):
        invoke("nothing", "--out", str(tmp_path))


def test_a_page_that_cannot_be_written_leaves_what_was_there(tmp_path, runs, monkeypatch):
    make_run(runs)
    out = tmp_path / "r.html"
    out.write_text("before")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rlvr_core.record.files.os.fsync", full)
    with pytest.raises(RunError, match="the disk is full"):
        invoke("demo", "--out", str(out), "--runs-dir", str(runs))
    assert out.read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "runs"]


def test_a_run_is_named_once(tmp_path, runs):
    folder = make_run(runs)
    with pytest.raises(ConfigError, match="are one run"):
        invoke("demo", str(folder.path), "--out", str(tmp_path / "r"), "--runs-dir", str(runs))


def test_a_package_that_is_missing_is_named_with_the_remedy(tmp_path, runs, monkeypatch):
    make_run(runs)
    monkeypatch.chdir(tmp_path)
    for name in [module for module in sys.modules if module.partition(".")[0] == "plotly"] + [
        "plotly"
    ]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MachineError, match="plotly") as error:
        invoke("demo", "--runs-dir", str(runs))
    assert 'pip install "rlvr-core[report]"' in str(error.value)
    assert not (tmp_path / "report.html").exists()


def test_a_long_run_makes_no_large_page(make_report, runs):
    folder = make_run(runs)
    line = json.loads(folder.metrics.read_text().splitlines()[0])
    line |= {f"reward/v{i}": 0.123456 for i in range(5)}
    folder.metrics.write_text(
        "".join(json.dumps(line | {"step": step}) + "\n" for step in range(20_000))
    )
    page = Page(make_report("demo"))
    data = json.loads(next(text for kind, text in page.scripts if kind == "application/json"))
    assert max(len(trace["x"]) for plot in data.values() for trace in plot["data"]) <= 1000
    assert "67 steps are added up in each bar." in page.text  # 20,000 / 300
