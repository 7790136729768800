import json

TASKS = [{"use": "toy/letters", "with": {"count": 6}}]


def test_the_best_checkpoint_stays_and_is_saved_off_schedule(lab, model_dir):
    run = lab.run(
        model_dir,
        train={"steps": 8, "lr": 2e-2, "warmup_steps": 1},
        eval={"tasks": TASKS, "every": 1},
        checkpoint={"every": 0, "keep": 1, "keep_best": "toy/letters:share_of_a"},
    )
    index = (run / "evals" / "index.jsonl").read_text().splitlines()
    values = {row["step"]: row["metrics"]["share_of_a"] for row in map(json.loads, index)}
    trained = {step: value for step, value in values.items() if step > 0}
    best = max(trained, key=lambda step: (trained[step], -step))
    checkpoints = run / "checkpoints"
    assert (checkpoints / "best").resolve().name == f"step{best:06d}"
    there = {path.name for path in checkpoints.iterdir() if path.name.startswith("step")}
    assert there == {f"step{best:06d}", "step000008"}


def test_a_best_by_what_is_not_there_is_refused(lab, model_dir):
    for wanted, where in (("toy/other:accuracy", "no eval task"), ("toy/letters:nope", "nope")):
        lab.write_run_config(model_dir, eval={"tasks": TASKS}, checkpoint={"keep_best": wanted})
        done = lab.rlvr("run", "config.yaml", "--display", "none", check=None)
        assert done.returncode == 2
        assert where in done.stderr
