"""Components named by where they stand: ./file.py:name and package.module:Name."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from rlvr_core.api import Completion, ConfigError, PluginError, Problem
from rlvr_core.config.model import ComponentRef
from rlvr_core.config.resolve import build
from rlvr_core.plugins.host import load_host
from rlvr_core.record.provenance.user_files import siblings
from rlvr_core.verify.pool import VerifierPool, VerifierSpec

REWARD = """
from rlvr_core.api import NoConfig, Verdict

def exact(text, answer):
    return text.strip() == answer

class Strict:
    def __init__(self, config: NoConfig) -> None:
        pass
    def verify(self, problem, completion):
        return Verdict(1.0)

class Other:
    pass

some = 3
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = list(sys.path)
    (tmp_path / "my_reward.py").write_text(REWARD)
    yield tmp_path
    sys.path[:] = path


@pytest.fixture(scope="module")
def host():
    return load_host({"RLVR_PLUGINS": ""})


def made(host, use, kind="verifier"):
    return build(host, kind, ComponentRef(use=use), "config.yaml:3 (rewards)")


def refused(host, use, kind="verifier"):
    with pytest.raises((ConfigError, PluginError)) as caught:
        made(host, use, kind)
    return caught.value


def verdict(verifier, text, **spec):
    return verifier.verify(Problem("p", "?", "v", spec, "d"), Completion.from_text(text))


@pytest.mark.parametrize("form", ["./my_reward.py", "my_reward.py", "{here}/my_reward.py"])
def test_a_file_is_named_relative_to_the_working_directory_or_absolutely(here, host, form):
    use = form.format(here=here)
    assert verdict(made(host, f"{use}:exact"), " 7 ", answer="7").score == 1.0
    assert verdict(made(host, f"{use}:exact"), "8", answer="7").score == 0.0
    assert type(made(host, f"{use}:Strict")).__name__ == "Strict"


def test_the_home_folder_is_a_tilde(here, host, monkeypatch):
    monkeypatch.setenv("HOME", str(here))
    monkeypatch.chdir("/")
    assert verdict(made(host, "~/my_reward.py:exact"), "7", answer="7").passed is True


def test_a_module_is_named_as_it_is_imported(here, host):
    found = made(host, "rlvr_core.verify.exact:Exact")
    assert type(found).__module__ == "rlvr_core.verify.exact"


def test_no_module_is_shadowed_and_none_can_be_met_by_accident(here, host):
    (here / "json.py").write_text("def score(text):\n    return 0.5\n")
    assert verdict(made(host, "./json.py:score"), "").score == 0.5
    import json

    assert "my_reward" not in sys.modules
    assert "json.py" in json.__file__ or json.dumps({}) == "{}"
    assert sys.modules["json"] is json


def test_what_lies_beside_the_file_can_be_imported(here, host):
    (here / "ways_beside.py").write_text("LIMIT = 4\n")
    (here / "far.py").write_text("import ways_beside\ndef short(text):\n    "
                                 "return len(text) < ways_beside.LIMIT\n")  # fmt: skip
    assert verdict(made(host, "far.py:short"), "abc").score == 1.0
    assert siblings(here / "far.py") == [here / "ways_beside.py"]


def test_a_sibling_with_the_name_of_something_installed_is_told(here, host):
    (here / "yaml.py").write_text("X = 1\n")
    (here / "far.py").write_text("import yaml\ndef f(text):\n    return 1.0\n")
    error = refused(host, "far.py:f")
    assert isinstance(error, PluginError)
    assert "'import yaml' found" in str(error)
    assert "rename the file" in str(error)


def test_a_changed_file_is_loaded_anew_and_the_old_one_stays_what_it_was(here, host):
    before = made(host, "my_reward.py:exact")
    target = host.entry("verifier", "my_reward.py:exact").target
    (here / "my_reward.py").write_text("def exact(text):\n    return 0.25\n")
    assert verdict(made(host, "my_reward.py:exact"), "7").score == 0.25
    assert verdict(before, "7", answer="7").score == 1.0
    # a worker process that starts now has what the run began with
    with VerifierPool({"v": VerifierSpec(target, {})}, workers=1, timeout=5, memory_mb=500) as pool:
        problem = Problem("p", "?", "v", {"answer": "7"}, "d")
        (row,) = pool.submit_group(problem, [Completion.from_text("7")], ["v"]).result(60)
        assert row["v"].score == 1.0


def test_a_fresh_process_unpickles_what_a_file_defines(here, host):
    kept = pickle.dumps(type(made(host, "my_reward.py:Strict")))
    (here / "kept").write_bytes(kept)
    code = "import rlvr_core, pickle; print(pickle.load(open('kept', 'rb')).__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Strict"


@pytest.mark.parametrize(
    ("use", "kind", "says"),
    [
        ("my_rewrad.py:exact", "verifier", ["there is no file", "did you mean: my_reward.py?"]),
        ("./sub/x.py:f", "verifier", ["there is no file './sub/x.py'"]),
        ("my_reward.py:exakt", "verifier", ["no 'exakt' in my_reward.py", "did you mean: exact?"]),
        ("my_reward.py", "verifier", ["which verifier in it", "my_reward.py:NAME", "exact"]),
        ("my_reward.py:Other", "verifier", ["is not a verifier", "no method verify"]),
        ("my_reward.py:Strict", "sampler", ["is not a sampler", "draw"]),
        ("my_reward.py:Other", "loss", ["is not a loss", "__call__"]),
        ("my_reward.py:some", "verifier", ["is a int", "a class or a function"]),
        ("no_such_pkg.mod:Name", "verifier", ["no module 'no_such_pkg.mod'", "./no_such_pkg/mod"]),
        ("json.nothing:Name", "verifier", ["no module 'json.nothing'"]),
        ("json:lods", "verifier", ["no 'lods' in json", "did you mean: loads"]),
    ],
)
def test_what_cannot_be_found_is_told_where_it_was_written(here, host, use, kind, says):
    error = refused(host, use, kind)
    assert isinstance(error, ConfigError)
    assert "config.yaml:3" in str(error)
    for text in says:
        assert text in str(error)


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("x = 1\ndef f(:\n", 2, "SyntaxError"),
        ("\n\nimport no_such_thing_at_all\n", 3, "ModuleNotFoundError"),
        ("def g():\n    raise OSError('full')\ng()\n", 2, "OSError: full"),
        ("import sys\nsys.exit(3)\n", 2, "SystemExit"),
    ],
)
def test_a_file_that_does_not_load_is_named_with_its_line(here, host, source, line, says):
    (here / "bad.py").write_text(source)
    error = refused(host, "./bad.py:f")
    assert isinstance(error, PluginError)
    assert error.complaints[0].where == f"{here / 'bad.py'}:{line}"
    assert f"'./bad.py:f' failed to load: {says}" in str(error)


def test_a_generator_function_is_a_dataset(here, host):
    (here / "data.py").write_text(
        "def sums(n: int = 2):\n"
        "    for i in range(n):\n"
        "        yield {'id': f's{i}', 'prompt': f'{i}+1=', 'answer': str(i + 1)}\n"
    )
    loader = build(host, "dataset", ComponentRef(use="./data.py:sums", **{"with": {"n": 3}}))
    problems = list(loader.load())
    assert [p.id for p in problems] == ["s0", "s1", "s2"]
    assert problems[2].prompt == "2+1="
    assert problems[2].spec["answer"] == "3"
    assert [p.where for p in problems] == ["sums, row 1", "sums, row 2", "sums, row 3"]
    with pytest.raises(ConfigError, match="'m'"):
        build(host, "dataset", ComponentRef(use="./data.py:sums", **{"with": {"m": 3}}))


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        ("advantage", "__call__"),
        ("dataset", "load"),
        ("engine", "submit"),
        ("eval_task", "problems"),
        ("guard", "on_step"),
        ("launcher", "plan"),
        ("loss", "__call__"),
        ("optimizer", "build"),
        ("sampler", "draw"),
        ("schedule", "__call__"),
        ("tracker", "start"),
        ("transport", "send"),
        ("verifier", "verify"),
    ],
)
def test_a_class_without_the_methods_of_its_kind_is_refused_by_their_names(
    here, host, kind, missing
):
    error = refused(host, "./my_reward.py:Other", kind)
    assert f"it has no method {missing}" in str(error) or f", {missing}" in str(error)
    assert "my_reward.py:Other" in str(error)
