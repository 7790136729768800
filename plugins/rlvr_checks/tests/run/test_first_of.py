"""The share of passes that checks/first-of's second verifier alone granted, in runs."""

import json


def test_in_a_run_the_share_is_a_metric_and_the_bound_holds(lab):
    (lab.folder / "parts.py").write_text(
        "def never(text, answer):\n    return False\n"
        "def often(text, answer):\n    return sum(map(ord, text)) % 4 > 0\n"
    )
    options = {
        "first": "./parts.py:never", "second": "./parts.py:often", "max_share": 0.9,
    }  # fmt: skip
    lab.write(
        rewards=[{"use": "checks/first-of", "with": options}],
        train={"steps": 3, "prompts_per_step": 4},
        sampling={"n": 8, "max_tokens": 4},
    )
    done = lab.rlvr("run", "config.yaml", "--display", "none", check=None)
    (run,) = (lab.folder / "runs").iterdir()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert all(line["first_of/second_share"] == 1.0 for line in lines)
    assert all(line["first_of/asked"] == 1.0 for line in lines)
    assert "alone passed" in done.stderr
    assert done.returncode == 1
