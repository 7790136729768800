"""Options of plugins of hooks (``plugins:``) outside of training."""

from pathlib import Path


def told(note=Path("note.txt")):
    """What the plugin was configured with since this was last asked."""
    text = note.read_text() if note.exists() else None
    note.unlink(missing_ok=True)
    return text


def test_a_checkpoint_brings_the_options_of_its_run(lab, model_dir):
    lab.run(model_dir, plugins={"toy": {"note": "of the run"}})
    assert told() == "of the run"
    letters = ["--task", "toy/letters", "--limit", "2", "--allow-truncation"]
    lab.rlvr("eval", "last", *letters)
    assert told() == "of the run"
    sampled = [*letters, "--n", "2", "--out", "rates"]
    lab.rlvr("passk", "last", *sampled, "--set", "plugins.toy.note=mine")
    assert told() == "mine"
    lab.rlvr("regrade", "last", "--verifier", "toy/odd")
    assert told() == "of the run"
    lab.rlvr("eval", str(model_dir), *letters)
    assert told() is None

    options = ["--set", "plugins.toy.noot=x"]
    done = lab.rlvr("eval", str(model_dir), *letters, *options, check=2)
    assert "unknown option 'noot' of plugin 'toy'" in done.stderr
    assert "did you mean: note?" in done.stderr
    done = lab.rlvr("eval", str(model_dir), *letters, "--set", "plugins.gone.x=1", check=2)
    assert "no installed plugin is called 'gone'" in done.stderr


def test_a_plugin_of_the_run_that_is_not_here_is_left_out(lab, model_dir):
    run = lab.run(model_dir)
    resolved = run / "resolved.yaml"
    text = resolved.read_text()
    assert "\nplugins: {}\n" in text
    resolved.write_text(text.replace("\nplugins: {}\n", "\nplugins: {gone: {x: 1}}\n"))
    letters = ["--task", "toy/letters", "--limit", "2", "--allow-truncation"]
    done = lab.rlvr("eval", "last", *letters)
    assert "plugin 'gone', which the run had options for, is not installed here" in done.stderr
