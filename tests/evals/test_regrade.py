import json
from pathlib import Path

import pytest

from rlvr_core.builtin.evals.regrade import regrade
from rlvr_core.builtin.evals.stored import open_stored
from rlvr_core.host.host import load_host
from rlvr_core.verify.pool import VerifierPool, VerifierSpec


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def signs(values):
    return [(a > b) - (a < b) for i, a in enumerate(values) for b in values[:i]]


def normalised(values):
    mean = sum(values) / len(values)
    std = (sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5
    return [(v - mean) / max(std, 1e-6) for v in values]


def test_a_run_before_another_verifier(lab, model_dir):
    run = lab.run(model_dir)
    groups = lines(run / "traces" / "rollouts.jsonl")

    same = lab.json("regrade", "last", "--verifier", "lab/early")
    assert same["changed"] == same["groups_reordered"] == 0
    assert same["advantage_mean_abs_change"] == 0

    found = lab.json("regrade", "last", "--verifier", "lab/odd")
    old = [[one["reward"] for one in group["completions"]] for group in groups]
    new = [[float(len(one["text"]) % 2) for one in group["completions"]] for group in groups]
    flat = [one for group in groups for one in group["completions"]]
    gained = sum(not one["passed"] and len(one["text"]) % 2 == 1 for one in flat)
    assert found["outcomes"].get("failed -> passed", 0) == gained
    assert found["completions"] == len(flat) == 4 * found["groups"]
    reordered = sum(signs(a) != signs(b) for a, b in zip(old, new, strict=True))
    assert found["groups_reordered"] == reordered > 0
    had = [max(a) > min(a) for a in old]
    has = [max(b) > min(b) for b in new]
    lost = sum(h and not n for h, n in zip(had, has, strict=True))
    assert found["groups_lost_signal"] == lost
    assert found["advantage_mode"] == "group"
    one, two = ([a for rewards in both for a in normalised(rewards)] for both in (old, new))
    shift = sum(abs(b - a) for a, b in zip(one, two, strict=True)) / len(one)
    assert found["advantage_mean_abs_change"] == pytest.approx(shift)
    flips = sum(a * b < 0 for a, b in zip(one, two, strict=True))
    assert found["advantage_sign_flips"] == flips
    assert found["examples"][0]["outcome"] in ("failed -> passed", "passed -> failed")
    told = lab.rlvr("regrade", "last", "--verifier", "lab/odd").stdout
    assert "groups with another order" in told


def summed_after(scores, groups, weights):
    """Each reward's advantages by themselves, their weighted sum at deviation 1 over the step."""
    columns = []
    for k, weight in enumerate(weights):
        parts = [normalised([scores[i][k] for i in group]) for group in groups]
        columns.append([weight * one for part in parts for one in part])
    sums = [sum(row) for row in zip(*columns, strict=True)]
    mean = sum(sums) / len(sums)
    std = (sum((one - mean) ** 2 for one in sums) / len(sums)) ** 0.5
    return [(one - mean) / (std + 1e-4) for one in sums]


@pytest.mark.parametrize("combine", ["sum_then_normalise", "normalise_then_sum"])
def test_advantages_are_made_as_the_run_made_them(lab, model_dir, combine):
    rows = [{"id": f"r{i}", "question": f"Tell {i}.", "hopeless": False} for i in range(8)]
    more = "".join(json.dumps(row) + "\n" for row in rows)
    (lab.folder / "more.jsonl").write_text(more)
    source = {"prompt": "question", "id": "id", "verifier": "lab/early"}
    both = [
        {"use": "core/jsonl", "with": source | {"path": "data.jsonl"}},
        {"use": "core/jsonl", "with": source | {"path": "more.jsonl"}, "advantage_scale": 4.0},
    ]
    run = lab.run(
        model_dir,
        data={"sources": both},
        sampler={"with": {"drop_zero_variance": False}},
        rewards=["auto", {"use": "lab/odd", "weight": 0.5}],
        advantage={"use": "group", "with": {"combine": combine}},
        train={"steps": 3, "prompts_per_step": 6, "lr": 1e-3, "mask_truncated": False},
    )
    groups = lines(run / "traces" / "rollouts.jsonl")
    host = load_host()
    stored = open_stored("last", host)
    spec = VerifierSpec(host.entry("verifier", "lab/odd").target, {})
    with VerifierPool({"lab/odd": spec}, workers=1, timeout=20, memory_mb=2048) as pool:
        changes = regrade(stored, pool, "lab/odd")
    told = [one["advantage"] for group in groups for one in group["completions"]]
    assert {group["problem_id"][0] for group in groups} == {"q", "r"}
    assert [before for before, _ in changes.advantages] == pytest.approx(told)

    # by hand: the new verifier scores 1 for an odd number of letters, as the second reward does
    expected = []
    for step in range(3):
        of_step = [group for group in groups if group["step"] == step]
        flat = [one for group in of_step for one in group["completions"]]
        odd = [float(len(one["text"]) % 2) for one in flat]
        places = [range(4 * i, 4 * i + 4) for i in range(len(of_step))]
        if combine == "normalise_then_sum":
            made = summed_after([(one, one) for one in odd], places, (1.0, 0.5))
        else:
            made = [x for place in places for x in normalised([1.5 * odd[i] for i in place])]
        scale = [4.0 if group["problem_id"][0] == "r" else 1.0 for group in of_step]
        expected += [one * scale[i // 4] for i, one in enumerate(made)]
    assert [after for _, after in changes.advantages] == pytest.approx(expected)
    found = lab.rlvr("regrade", "last", "--verifier", "lab/odd").stdout
    assert f"by 'group', combine: {combine}" in found


def test_results_before_another_verifier(lab, model_dir):
    task = ("--task", "lab/letters", "--allow-truncation", "--with", "hopeless=2", "--limit", "9")
    lab.rlvr("eval", model_dir, *task, "--out", "out")
    found = lab.json("regrade", "out", "--verifier", "lab/early", "--with", "limit=255")
    rows = lines(lab.folder / "out" / "lab_letters" / "results.jsonl")
    said = lines(lab.folder / "out" / "lab_letters" / "completions.jsonl")
    passed = [ord(one["text"][0]) < 255 for one in said]
    gained = [r["passed"] is False and p for r, p in zip(rows, passed, strict=True)]
    assert found["outcomes"].get("failed -> passed", 0) == sum(gained)
    assert found["outcomes"]["unscored -> unscored"] == 2
    assert found["statuses"] == {"ok": 7, "unscorable": 2}
    assert found["groups"] == 0
    unknown = lab.rlvr("regrade", "out", "--verifier", "lab/erly", check=2)
    assert "did you mean: lab/early" in unknown.stderr
