"""No plugin, however broken, stops rlvr or another plugin; each is named with place and remedy."""

from __future__ import annotations

import pytest

HOOKIMPL = "from rlvr_core.api import hookimpl\n"

# name: source, line of the fault (counted by hand), part of the message, part of the remedy
BROKEN = {
    "import": ("import os\nimport acme_is_not_there\n", 2, "acme_is_not_there", "force-reinstall"),
    "misspelt": (
        HOOKIMPL + "@hookimpl\ndef register_verifier(registrar): ...\n",
        3,
        "no hook called 'register_verifier'",
        "did you mean: register_verifiers",
    ),
    "unmarked": (
        "def register_losses(registrar): ...\n",
        1,
        "never be called",
        "write @hookimpl above def register_losses",
    ),
    "too_new": (
        HOOKIMPL + "\nRLVR_API = 99\n@hookimpl\ndef register_x(registrar): ...\n",
        3,
        "plugin API 99",
        "pip install --upgrade rlvr-core",
    ),
    "too_old": ("RLVR_API = 0\n", 1, "plugin API 0", "--upgrade rlvr-core acme-too_old"),
    "raises": (
        HOOKIMPL + "@hookimpl\ndef register_samplers(registrar):\n"
        "    registrar.add('first', 'acme_raises.x:X', summary='Is taken back.')\n    1 / 0\n",
        5,
        "ZeroDivisionError",
        "RLVR_PLUGINS_OFF=raises",
    ),
    "twice": (
        HOOKIMPL + "@hookimpl\ndef register_losses(registrar):\n"
        "    registrar.add('a', 'acme_twice.x:X', summary='One.')\n"
        "    registrar.add('a', 'acme_twice.x:Y', summary='Two.')\n",
        5,
        "registered twice",
        "rename one",
    ),
    "bad_name": (
        HOOKIMPL + "@hookimpl\ndef register_losses(registrar):\n"
        "    registrar.add('A b', 'acme_bad_name.x:X', summary='One.')\n",
        4,
        "bad loss name 'A b'",
        "lower-case",
    ),
    "exits": ("import sys\nsys.exit(0)\n", 2, "SystemExit", "RLVR_PLUGINS_OFF=exits"),
    "syntax": ("x = 1\ndef f(:\n", 2, "SyntaxError", "RLVR_PLUGINS_OFF=syntax"),
    "arguments": (
        HOOKIMPL + "@hookimpl\ndef register_losses(registry): ...\n",
        3,
        "asks for registry",
        "def register_losses(registrar)",
    ),
    "coroutine": (
        HOOKIMPL + "@hookimpl\nasync def step_finished(event): ...\n",
        3,
        "never run",
        "plain function",
    ),
    "wrapper": (
        HOOKIMPL + "@hookimpl(wrapper=True)\ndef run_started(event):\n    return (yield)\n",
        3,
        "wrapper",
        "without wrapper",
    ),
    "nothing": ("x = 1\n", 1, "no hook", "rlvr docs plugins#hooks"),
}


@pytest.fixture(scope="module")
def crowd(tmp_path_factory, new_site, good_plugin):
    """One site with every broken plugin and a good one among them."""
    site = new_site(tmp_path_factory.mktemp("crowd"))
    good_plugin(site)
    for name, (source, *_) in BROKEN.items():
        site.plugin(name, source)
    site.install("acme-gone", "gone = acme_gone.plugin")
    site.install("acme-mangled", "mangled =")
    site.install("acme-core", "core = acme_good.plugin")
    site.install("acme-run", "run = acme_good.plugin")
    site.install("acme-eval", "eval = acme_good.plugin")
    site.install("acme-alias", "zalias = acme_good.plugin")
    site.install("acme-one", "clash = acme_good.plugin")
    site.install("acme-two", "clash = acme_good.verifiers")
    site.plugin(
        "heavy",
        HOOKIMPL + "import acme_heavy.parts\n@hookimpl\ndef register_losses(registrar):\n"
        "    registrar.add('a', 'acme_heavy.parts:A', summary='Works.')\n",
    )
    site.module("acme_heavy/parts.py", "A = 1\n\nfrom boto3 import session\n")
    site.module("boto3/__init__.py", "session = 1\n")
    site.plugin("prints", HOOKIMPL + "print('noise')\n@hookimpl\ndef run_started(event): ...\n")
    return site


@pytest.fixture(scope="module")
def listed(crowd):
    outcome = crowd.run("plugins", "list", "--json")
    assert outcome.code == 0, outcome
    return {(record["name"], record["distribution"]): record for record in outcome.json}


def only_problem(listed, name):
    record = listed[name, f"acme-{name}"]
    assert len(record["problems"]) == 1, record
    return record, record["problems"][0]


@pytest.mark.parametrize("name", BROKEN)
def test_broken_plugin_is_named_with_place_and_remedy(crowd, listed, name):
    _, line, message, remedy = BROKEN[name]
    record, problem = only_problem(listed, name)
    assert record["status"] == "failed"
    assert record["version"] == "1.2.3"
    assert record["module"] == f"acme_{name}.plugin"
    assert message in problem["message"]
    assert problem["file"] == str(crowd.folder / f"acme_{name}" / "plugin.py")
    assert problem["line"] == line
    assert remedy in "\n".join(problem["remedy"])
    assert record["components"] == []


def test_missing_module_points_at_the_entry_point(crowd, listed):
    record, problem = only_problem(listed, "gone")
    assert record["status"] == "failed"
    assert "No module named 'acme_gone'" in problem["message"]
    assert problem["file"] == str(crowd.folder / "acme_gone-1.2.3.dist-info" / "entry_points.txt")
    assert problem["line"] == 2
    assert problem["remedy"][0].endswith("pip install --force-reinstall acme-gone")


def test_entry_point_without_target_spoils_no_other(listed):
    record, problem = only_problem(listed, "mangled")
    assert record["status"] == "failed"
    assert "names no module" in problem["message"]


@pytest.mark.parametrize(
    ("name", "message"), [("core", "core's own"), ("run", "is a command"), ("eval", "is a command")]
)
def test_reserved_name(listed, name, message):
    record, problem = only_problem(listed, name)
    assert record["status"] == "failed"
    assert message in problem["message"]
    assert listed["core", "rlvr-core"]["status"] == "ok"


def test_one_module_under_two_names(listed):
    record, problem = (
        listed["zalias", "acme-alias"],
        listed["zalias", "acme-alias"]["problems"][0],
    )
    assert record["status"] == "failed"
    assert "same module as plugin 'good'" in problem["message"]


def test_clash_loads_neither(listed):
    for one, other in (("one", "two"), ("two", "one")):
        record = listed["clash", f"acme-{one}"]
        assert record["status"] == "failed"
        assert f"acme-{other} 1.2.3" in record["problems"][0]["message"]
        assert f"RLVR_PLUGINS_OFF=acme-{other}" in record["problems"][0]["remedy"][0]


def test_clash_is_settled_by_turning_one_off(crowd):
    outcome = crowd.run("plugins", "show", "clash", "--json", RLVR_PLUGINS_OFF="acme-two,good")
    states = {record["distribution"]: record["status"] for record in outcome.json}
    assert states == {"acme-one": "ok", "acme-two": "off"}


def test_heavy_import_is_a_warning_at_its_line(crowd, listed):
    record, problem = only_problem(listed, "heavy")
    assert record["status"] == "warned"
    assert "boto3" in problem["message"]
    assert problem["file"] == str(crowd.folder / "acme_heavy" / "parts.py")
    assert problem["line"] == 3
    assert "move the import" in problem["remedy"][0]
    assert record["components"] == [{"kind": "loss", "name": "heavy/a"}]


def test_good_plugin_among_them_works(crowd, listed):
    assert listed["good", "acme-good"]["status"] == "ok"
    outcome = crowd.run("list", "verifier", "right", "--json")
    assert outcome.code == 0, outcome
    assert outcome.json["name"] == "good/right"


def test_printing_plugin_spoils_no_json(crowd, listed):
    assert listed["prints", "acme-prints"]["status"] == "ok"
    assert "noise" in crowd.run("plugins", "list", "--json").err


def test_none_stops_help(crowd):
    outcome = crowd.run("--help")
    assert outcome.code == 0, outcome
    assert "Train a model" in outcome.out
    assert outcome.err == ""


def test_cli_exit_code_of_broken_plugin(crowd):
    outcome = crowd.run("list", "verifier", "syntax/x")
    assert outcome.code == 3, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("noise\nerror: verifier 'syntax/x' is unavailable\n")
    assert "acme_syntax/plugin.py:2" in outcome.err


def test_show_names_every_problem_at_once(site):
    file = site.plugin(
        "two",
        HOOKIMPL + "@hookimpl\ndef register_verifier(registrar): ...\n"
        "@hookimpl\ndef register_loses(registrar): ...\n",
    )
    outcome = site.run("plugins", "show", "two")
    assert f"at {file}:3" in outcome.out
    assert f"at {file}:5" in outcome.out
    assert "register_losses?" in outcome.out
