import json
from pathlib import Path


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_run_before_another_verifier(lab, model_dir):
    run = lab.run(model_dir)
    groups = lines(run / "traces" / "rollouts.jsonl")

    same = lab.json("regrade", "last", "--verifier", "toy/early")
    assert same["changed"] == same["groups_lost_signal"] == 0

    found = lab.json("regrade", "last", "--verifier", "toy/odd")
    old = [[one["reward"] for one in group["completions"]] for group in groups]
    new = [[float(len(one["text"]) % 2) for one in group["completions"]] for group in groups]
    flat = [one for group in groups for one in group["completions"]]
    gained = sum(not one["passed"] and len(one["text"]) % 2 == 1 for one in flat)
    assert found["outcomes"].get("failed -> passed", 0) == gained
    assert found["completions"] == len(flat) == 4 * found["groups"]
    had = [max(a) > min(a) for a in old]
    has = [max(b) > min(b) for b in new]
    lost = sum(h and not n for h, n in zip(had, has, strict=True))
    assert found["groups_lost_signal"] == lost
    assert found["examples"][0]["outcome"] in ("failed -> passed", "passed -> failed")
    told = lab.rlvr("regrade", "last", "--verifier", "toy/odd").stdout
    assert "groups that lose theirs" in told


def test_results_before_another_verifier(lab, model_dir):
    task = ("--task", "toy/letters", "--allow-truncation", "--with", "hopeless=2", "--limit", "9")
    lab.rlvr("eval", model_dir, *task, "--out", "out")
    found = lab.json("regrade", "out", "--verifier", "toy/early", "--with", "limit=255")
    rows = lines(lab.folder / "out" / "toy_letters" / "results.jsonl")
    said = lines(lab.folder / "out" / "toy_letters" / "completions.jsonl")
    passed = [ord(one["text"][0]) < 255 for one in said]
    gained = [r["passed"] is False and p for r, p in zip(rows, passed, strict=True)]
    assert found["outcomes"].get("failed -> passed", 0) == sum(gained)
    assert found["outcomes"]["unscored -> unscored"] == 2
    assert found["statuses"] == {"ok": 7, "unscorable": 2}
    assert found["groups"] == 0
    unknown = lab.rlvr("regrade", "out", "--verifier", "toy/erly", check=2)
    assert "did you mean: toy/early" in unknown.stderr
