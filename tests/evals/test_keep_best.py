TASKS = [{"use": "toy/letters", "with": {"count": 6}}]


def test_a_best_by_what_is_not_there_is_refused(lab, model_dir):
    for wanted, where in (("toy/other:accuracy", "no eval task"), ("toy/letters:nope", "nope")):
        lab.write_run_config(model_dir, eval={"tasks": TASKS}, checkpoint={"keep_best": wanted})
        done = lab.rlvr("run", "config.yaml", "--display", "none", check=None)
        assert done.returncode == 2
        assert where in done.stderr
