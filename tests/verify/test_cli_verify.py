import gzip
import json
import signal
import subprocess
import sys
import time

import psutil
import pytest

from rlvr_core.cli.main import main

RLVR = [sys.executable, "-m", "rlvr_core.cli.main"]


def row(id_, response, answer="4", **more):
    return {"id": id_, "spec": {"answer": answer}, "response": response} | more


def written(folder, rows, name="answers.jsonl"):
    path = folder / name
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    return str(path)


@pytest.fixture
def run(capsys):
    def call(*args):
        code = main(["verify", *args])
        out, err = capsys.readouterr()
        return code, [json.loads(line) for line in out.splitlines()], err

    return call


def test_verdicts_come_in_order_with_a_summary_on_stderr(run, tmp_path):
    rows = [row(n, "4" if n % 3 == 0 else "5") for n in range(30)]
    code, verdicts, err = run("core/exact", written(tmp_path, rows))
    assert code == 0
    assert [v["id"] for v in verdicts] == list(range(30))
    assert [v["passed"] for v in verdicts] == [n % 3 == 0 for n in range(30)]
    assert list(verdicts[1]) == [
        "id",
        "score",
        "status",
        "passed",
        "parts",
        "extracted",
        "detail",
    ]
    assert "30 verdicts: 10 of 30 scored passed (33.3%), mean score 0.3333" in err
    assert "ok 30" in err


def test_the_summary_may_be_json(run, tmp_path):
    rows = [row("a", "4"), row("b", "x"), row("b", "4"), {**row("c", "4"), "spec": {}}]
    code, _, err = run("exact", written(tmp_path, rows), "--json")
    summary = json.loads(err)
    assert code == 0
    assert (summary["n"], summary["passed"], summary["repeated_ids"]) == (4, 2, 1)
    assert summary["mean_score"] == pytest.approx(2 / 3)
    assert summary["statuses"] == {"ok": 3, "unscorable": 1, "timeout": 0, "busy": 0, "error": 0}
    assert summary["verdicts_per_second"] > 0


def test_full_marks_of_a_function_count_as_passed(run, tmp_path):
    """Scores 1, 0.5 and 0 without a word on passing: docs/verifiers.md."""
    function = tmp_path / "share.py"
    function.write_text("def share(text, answer):\n    return float(text)\n")
    rows = [row(n, text) for n, text in enumerate(["1", "0.5", "0"])]
    code, _, err = run(f"{function}:share", written(tmp_path, rows))
    assert code == 0
    assert "3 verdicts: 1 of 3 scored passed (33.3%), mean score 0.5000" in err


def test_options_reach_the_verifier(run, tmp_path):
    file = written(tmp_path, [row(1, " 4")])
    assert run("exact", file)[1][0]["passed"] is True
    assert run("exact", file, "--with", "strip=false")[1][0]["passed"] is False
    code, verdicts, err = run("exact", file, "--with", "strp=1")
    assert (code, verdicts) == (2, [])
    assert "strp" in err
    assert "strip" in err


def test_an_original_row_will_do_as_spec_and_other_fields_are_ignored(run, tmp_path):
    original = {"question": "2+2?", "answer": "4", "level": 1}
    rows = [{"id": "x", "spec": original, "response": "4", "tags": {"level": 1}, "prompt": "2+2?"}]
    assert run("exact", written(tmp_path, rows))[1][0]["passed"] is True


def test_gzipped_and_array_files(run, tmp_path):
    packed = tmp_path / "answers.jsonl.gz"
    packed.write_bytes(gzip.compress((json.dumps(row(1, "4")) + "\n").encode()))
    assert run("exact", str(packed))[1][0]["passed"] is True
    array = tmp_path / "answers.json"
    array.write_text(json.dumps([row(1, "4"), row(2, "5")], indent=1))
    assert [v["passed"] for v in run("exact", str(array))[1]] == [True, False]


def test_a_spec_the_verifier_cannot_use_is_unscorable_with_the_reason(run, tmp_path):
    rows = [{"id": 1, "spec": {"ans": "4"}, "response": "4"}]
    code, (verdict,), err = run("exact", written(tmp_path, rows))
    assert code == 1
    assert "no answer was scored" in err
    assert (verdict["status"], verdict["score"]) == ("unscorable", None)
    assert "'answer'" in verdict["detail"]
    assert "ans" in verdict["detail"]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ({"id": 1, "response": "4"}, "no field 'spec'"),
        ({"spec": {}, "response": "4"}, "no field 'id'"),
        ({"id": 1, "spec": {}}, "no field 'response'"),
        ({"id": 1, "spec": "4", "response": "4"}, "'spec' must be"),
        ({"id": 1, "spec": {}, "response": None}, "'response' must be"),
        ({"id": None, "spec": {}, "response": ""}, "'id' must be"),
        ({"id": 1, "spec": {}, "response": "", "prompt": [{"role": "user"}]}, "'prompt' must be"),
    ],
)
def test_a_bad_row_in_a_file_is_named_before_anything_is_printed(run, tmp_path, bad, says):
    code, verdicts, err = run("exact", written(tmp_path, [row(0, "4"), bad]))
    assert (code, verdicts) == (2, [])
    assert "answers.jsonl:2" in err
    assert says in err


def test_a_line_that_is_no_json_is_named(run, tmp_path):
    file = tmp_path / "answers.jsonl"
    file.write_text(json.dumps(row(0, "4")) + "\n{oops\n")
    code, verdicts, err = run("exact", str(file))
    assert (code, verdicts) == (2, [])
    assert "answers.jsonl:2" in err


def test_unknown_verifiers_and_files_are_named(run, tmp_path):
    code, _, err = run("core/exat", written(tmp_path, []))
    assert code == 2
    assert "core/exact" in err
    code, _, err = run("nobody/exact", written(tmp_path, []))
    assert code in (2, 3)
    assert "nobody" in err
    code, _, err = run("exact", str(tmp_path / "none.jsonl"))
    assert code == 2
    assert "none.jsonl" in err


def test_an_empty_file_has_no_verdicts(run, tmp_path):
    code, verdicts, err = run("exact", written(tmp_path, []))
    assert (code, verdicts) == (1, [])
    assert "0 verdicts" in err


def test_odd_text_goes_through(run, tmp_path):
    text = "naïve \u2028 \ud800 \0 😀"
    _, (verdict,), _ = run("exact", written(tmp_path, [row("é", text, answer=text)]))
    assert verdict["passed"] is True
    assert (verdict["id"], verdict["extracted"]) == ("é", text)


def start(*args):
    return subprocess.Popen(
        [*RLVR, "verify", *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a job in the background of a shell inherits the interrupt as ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_standard_input_is_answered_as_it_comes():
    with start("exact", "-", "--workers", "1") as process:
        for n in range(3):
            process.stdin.write(json.dumps(row(n, "4")) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == n
        process.stdin.write('{"id": 9}\n' + json.dumps(row(10, "4")) + "\n")
        process.stdin.close()
        assert process.stdout.read() == ""
        assert "standard input:4" in process.stderr.read()
        assert process.wait(20) == 2


def test_a_reader_that_leaves_is_no_bug(tmp_path):
    file = written(tmp_path, [row(n, "4" * 2000) for n in range(3000)])
    with start("exact", file) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 1
        assert "Traceback" not in process.stderr.read()


SLEEPS = "tests.support.verify.bad_verifiers:Sleeps"


def test_bad_verdicts_have_their_status_and_the_rest_their_score(tmp_path):
    file = written(tmp_path, [row(1, "a"), row(2, "hang"), row(3, "b")])
    with start(SLEEPS, file, "--timeout", "0.5") as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert [json.loads(line)["status"] for line in out.splitlines()] == ["ok", "timeout", "ok"]
    assert "timeout 1" in err


def test_an_interrupt_ends_it_at_once_and_leaves_no_process(tmp_path):
    file = written(tmp_path, [row(0, "a")] + [row(n, "hang") for n in range(1, 50)])
    with start(SLEEPS, file, "--timeout", "500") as process:
        assert json.loads(process.stdout.readline())["id"] == 0
        children = psutil.Process(process.pid).children(recursive=True)
        assert children
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert process.stdout.read() == ""
    assert psutil.wait_procs(children, timeout=10)[1] == []
