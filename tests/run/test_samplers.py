"""Samplers in whole runs: resumed bit for bit, refused before anything is made, previewed."""

import json

import pytest

from tests.support.run_records import digest, killed_and_resumed, lines

SIX = {"train": {"steps": 6, "lr": 1e-3, "warmup_steps": 1}, "checkpoint": {"every": 1, "keep": 9}}


@pytest.mark.slow
def test_t94_pass_rates_extended_groups_and_replayed_ones_survive_a_kill(lab):
    adaptive = {"k_success": 1, "k_failure": 2, "chunk_size": 2, "max_completions": 6}
    options = {"max_reads": 2, "refill": 0.5, "adaptive": adaptive}
    sections = SIX | {"sampler": {"use": "difficulty", "with": options}}
    straight = lab.run(**sections)
    resumed = killed_and_resumed(lab)
    assert resumed != straight
    assert digest(resumed) == digest(straight)
    steps = lines(straight / "metrics.jsonl")
    assert sum(line["groups/replayed"] for line in steps) >= 4
    assert any(2 < line["groups/size"] < 6 for line in steps if "groups/size" in line)
    seen = [line["sampler/unseen"] for line in steps]
    assert seen == sorted(seen, reverse=True)
    assert seen[-1] < 40
    shown = json.loads(lab.rlvr("show", "last", "--json").stdout)
    assert shown["ledger"]["balanced"] is True


def test_t41_a_curriculum_of_other_ids_starts_nothing(lab):
    (lab.folder / "order.txt").write_text("p3\np-4\np5\n")
    lab.write(sampler={"use": "curriculum", "with": {"order": "order.txt"}})
    done = lab.rlvr("run", "config.yaml", check=2)
    assert "no problem has the id 'p-4'; the nearest are p4" in done.stderr
    assert "order.txt:2" in done.stderr
    assert not lab.runs()


def test_a_dry_run_shows_the_problems_of_the_first_steps(lab):
    (lab.folder / "order.txt").write_text("".join(f"p{i}\n" for i in (30, 7, 21, 3, 14, 1)))
    options = {"order": "order.txt"}
    lab.config["train"]["prompts_per_step"] = 2
    adaptive = {"k_success": 1, "k_failure": 1, "chunk_size": 2, "max_completions": 8}
    lab.write(sampler={"use": "curriculum", "with": options | {"adaptive": adaptive}})
    done = lab.rlvr("run", "config.yaml", "--dry-run", "--display", "plain")
    said = done.stdout + done.stderr
    assert "step 1 would draw 2 of data: p30, p7" in said
    assert "step 3 would draw 2 of data: p14, p1" in said
    assert "2 prompts x up to 8 = 16 completions" in said
    assert not lab.runs()
