"""Verifiers whose rule was edited where their own file does not show it, between two evaluations.

The two models give different answers, so no answer was judged in both: only the verifiers
themselves can tell. Each edit turns the rule "has an e" into "has an o", or a limit of 6 to 9.
"""

import shutil
import sys
from dataclasses import dataclass, field

import pytest

LAX = "--allow-truncation"
ENDS = "    return float(rule.good(text))\n"
GOOD = {
    "e": "def good(text):\n    return 'e' in text\n",
    "o": "def good(text):\n    return 'o' in text\n",
}


@dataclass
class Edit:
    """The files of a project before, and those that the edit writes.

    Attributes:
        verifier: Text of ``own/mine.py``, with a function ``score``.
        before: Other files by path.
        after: The same after the edit.
        environment: Variables before and after.
    """

    verifier: str
    before: dict[str, str]
    after: dict[str, str]
    environment: tuple[dict[str, str], dict[str, str]] = field(default_factory=lambda: ({}, {}))


def letters(verifier, path, form="{}", **more):
    """An edit of a file that holds the letter."""
    return Edit(verifier, {path: form.format("e")}, {path: form.format("o")}, **more)


def code(verifier, path, **more):
    """An edit of a file that holds the rule."""
    return Edit(verifier, {path: GOOD["e"]}, {path: GOOD["o"]}, **more)


SCRIPT = '#!/bin/sh\ncase "$1" in *{}*) echo 1 ;; *) echo 0 ;; esac\n'
RUN = (
    "import pathlib, subprocess\n"
    "def score(text):\n"
    "    script = pathlib.Path(__file__).parent.parent / ('to' + 'ols') / ('ch' + 'eck.sh')\n"
    "    return float(subprocess.run({}, capture_output=True, text=True).stdout)\n"
)
TABLE = (
    "import json\nfrom pathlib import Path\n"
    "def score(text):\n"
    "    folder = Path(__file__).parent.parent / ('shared' + '_rules')\n"
    "    limits = json.loads((folder / ('lim' + 'its.json')).read_text())\n"
    "    return float(len(text) <= limits['most'])\n"
)
EDITS = {
    "table by a computed path": Edit(
        TABLE,
        {"shared_rules/limits.json": '{"most": 6}'},
        {"shared_rules/limits.json": '{"most": 9}'},
    ),
    "table that no answer notices": Edit(
        TABLE,
        {"shared_rules/limits.json": '{"most": 900000}'},
        {"shared_rules/limits.json": '{"most": 800000}'},
    ),
    "import_module beside": code(
        "import importlib\n"
        "def score(text):\n    rule = importlib.import_module('rule' + '1')\n" + ENDS,
        "own/rule1.py",
    ),
    "__import__ beside": code(
        "def score(text):\n    rule = __import__('ru' + 'le2')\n" + ENDS, "own/rule2.py"
    ),
    "path added to sys.path": code(
        "import sys, pathlib\n"
        "sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / 'library'))\n"
        "import rule3 as rule\ndef score(text):\n" + ENDS,
        "library/rule3.py",
    ),
    "module of PYTHONPATH": code(
        "import rule4 as rule\ndef score(text):\n" + ENDS, "on_path/rule4.py"
    ),
    "package of PYTHONPATH, lazily": code(
        "def score(text):\n    from rule5.inner import rule\n" + ENDS, "on_path/rule5/inner/rule.py"
    ),
    "exec of a source": code(
        "import pathlib\n"
        "def score(text):\n"
        "    names = {}\n"
        "    exec((pathlib.Path(__file__).parent / ('ru' + 'le.txt')).read_text(), names)\n"
        "    return float(names['good'](text))\n",
        "own/rule.txt",
    ),
    "spec_from_file_location": code(
        "import importlib.util as u, pathlib\n"
        "path = pathlib.Path(__file__).parent.parent / 'elsewhere' / ('ru' + 'le6.py')\n"
        "def score(text):\n"
        "    spec = u.spec_from_file_location('rule6', path)\n"
        "    rule = u.module_from_spec(spec)\n    spec.loader.exec_module(rule)\n" + ENDS,
        "elsewhere/rule6.py",
    ),
    "runpy": code(
        "import pathlib, runpy\n"
        "path = str(pathlib.Path(__file__).parent / ('ru' + 'le7.py'))\n"
        "def score(text):\n    return float(runpy.run_path(path)['good'](text))\n",
        "own/rule7.py",
    ),
    "shell script by a computed path": letters(
        RUN.format("['sh', str(script), text]"), "tools/check.sh", SCRIPT
    ),
    "shell command as a text": letters(
        "import shlex\n" + RUN.format("f'sh {script} {shlex.quote(text)}', shell=True"),
        "tools/check.sh",
        SCRIPT,
    ),
    "script that sources another": Edit(
        RUN.format("['sh', str(script), text]"),
        {"tools/check.sh": '. "$(dirname "$0")/inner.sh"\n', "tools/inner.sh": SCRIPT.format("e")},
        {"tools/inner.sh": SCRIPT.format("o")},
    ),
    "python program": letters(
        "import sys\n"
        + RUN.replace("check.sh", "check.py")
        .replace("eck.sh", "eck.py")
        .format("[sys.executable, str(script), text]"),
        "tools/check.py",
        "import sys\nprint(int({!r} in sys.argv[1]))\n",
    ),
    "file named by a variable": letters(
        "import os\n"
        "def score(text):\n    return float(open(os.environ['RU' + 'LE']).read() in text)\n",
        "elsewhere/rule.cfg",
        environment=({"RULE": "elsewhere/rule.cfg"}, {"RULE": "elsewhere/rule.cfg"}),
    ),
    "variable by a computed name": Edit(
        "import os\ndef score(text):\n    return float(os.environ['RU' + 'LE'] in text)\n",
        {},
        {},
        ({"RULE": "e"}, {"RULE": "o"}),
    ),
    "module named by a variable": Edit(
        "import importlib, os\n"
        "def score(text):\n    rule = importlib.import_module(os.environ['RU' + 'LE'])\n" + ENDS,
        {"own/rule8.py": GOOD["e"], "own/rule9.py": GOOD["o"]},
        {},
        ({"RULE": "rule8"}, {"RULE": "rule9"}),
    ),
    "database": Edit(
        "import pathlib, sqlite3\n"
        "path = pathlib.Path(__file__).parent / ('ru' + 'les.db')\n"
        "def score(text):\n"
        "    with sqlite3.connect(path) as base:\n"
        "        (letter,), = base.execute('select letter from rule')\n"
        "    return float(letter in text)\n",
        {"own/rules.db": "sqlite:e"},
        {"own/rules.db": "sqlite:o"},
    ),
    "link to a folder": letters(
        "import pathlib\n"
        "def score(text):\n"
        "    rules = sorted((pathlib.Path(__file__).parent / 'rules').iterdir())\n"
        "    return float(rules[-1].read_text() in text)\n",
        "own/rules/newest",
    ),
    "one more file of a folder": Edit(
        "import pathlib\n"
        "def score(text):\n"
        "    rules = sorted((pathlib.Path(__file__).parent / 'rules').iterdir())\n"
        "    return float(rules[-1].read_text() in text)\n",
        {"own/rules/1": "e"},
        {"own/rules/2": "o"},
    ),
    "second module behind one that is imported": Edit(
        "import one\ndef score(text):\n    return float(one.inner().good(text))\n",
        {
            "own/one.py": "import importlib\n"
            "def inner():\n    return importlib.import_module('tw' + 'o')\n",
            "own/two.py": GOOD["e"],
        },
        {"own/two.py": GOOD["o"]},
    ),
}
QUICK = ("table by a computed path", "import_module beside", "shell script by a computed path")


def write(folder, files):
    import sqlite3

    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("sqlite:"):
            path.unlink(missing_ok=True)
            with sqlite3.connect(path) as base:
                base.execute("create table rule (letter text)")
                base.execute("insert into rule values (?)", (text[-1],))
        else:
            path.write_text(text)
    for cache in folder.rglob("__pycache__"):
        shutil.rmtree(cache)


@pytest.fixture
def judged(lab, model_dir, other_model, monkeypatch):
    """Evaluates a model on one side of an edit, with the verifier in ``own/mine.py``."""
    models = {"a": model_dir, "b": other_model, "c": model_dir, "d": other_model}
    (lab.folder / "on_path").mkdir()
    monkeypatch.syspath_prepend(str(lab.folder / "on_path"))

    def run(out, edit, side):
        files = {"own/mine.py": edit.verifier, **edit.before}
        write(lab.folder, files if side == 0 else files | edit.after)
        for name in [name for name in sys.modules if name.startswith("rule")]:
            monkeypatch.delitem(sys.modules, name)
        for name, value in edit.environment[side].items():
            monkeypatch.setenv(name, value)
        use = ("--set", "rewards=[{use: ./own/mine.py:score}]", "--limit", "12")
        lab.rlvr("eval", models[out], "--task", "lab/letters", LAX, "--out", out, *use)

    return run


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in EDITS],
)
def test_an_edit_that_the_verifiers_own_file_does_not_show(lab, judged, name):
    edit = EDITS[name]
    judged("a", edit, 0)
    judged("b", edit, 0)
    same = lab.json("compare", "a", "b")["tasks"][0]
    assert same["differs"] == [], "other answers are no other verifier"
    judged("d", edit, 1)
    refused = lab.rlvr("compare", "a", "d", check=2)
    assert refused.stdout == ""
    assert "./own/mine.py:score" in refused.stderr
    assert "rlvr regrade" in refused.stderr
    (found,) = lab.json("compare", "a", "d", "--allow", "code")["tasks"]
    assert any(line.startswith("code") for line in found["differs"])


ALIKE = {
    "keeps a log and a cache": Edit(
        "import json, pathlib\n"
        "place = pathlib.Path(__file__).parent\n"
        "def score(text):\n"
        "    cache = place / ('ca' + 'che.json')\n"
        "    known = json.loads(cache.read_text()) if cache.exists() else {}\n"
        "    known[text] = len(known)\n"
        "    cache.write_text(json.dumps(known))\n"
        "    with open(place / 'judged.log', 'a') as log:\n        log.write(text)\n"
        "    return float('e' in text)\n",
        {},
        {},
    ),
    "draws": Edit("import random\ndef score(text):\n    return random.random()\n", {}, {}),
    "is slow": Edit(
        "import time\ndef score(text):\n    time.sleep(0.3)\n    return float('e' in text)\n",
        {},
        {},
    ),
    "is slower than all the time there is": Edit(
        "import time\ndef score(text):\n    time.sleep(1.5)\n    return float('e' in text)\n",
        {},
        {},
    ),
    "fails on some": Edit("def score(text):\n    return 1 / text.count('e')\n", {}, {}),
    "another file beside it": Edit(
        "def score(text):\n    return float('e' in text)\n",
        {"own/notes.md": "a"},
        {"own/notes.md": "b", "own/unused.py": "x = 1\n"},
    ),
}


@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.slow
def test_no_edit_is_seen_where_there_is_none(lab, judged, name):
    """Neither chance nor what a verifier writes itself is an edit."""
    judged("a", ALIKE[name], 0)
    judged("d", ALIKE[name], 1)
    (found,) = lab.json("compare", "a", "d")["tasks"]
    assert found["differs"] == []


def test_a_project_that_was_moved_judges_alike(lab, judged, monkeypatch):
    """The same files in another folder, with the table beside the verifier's folder."""
    edit = EDITS["table by a computed path"]
    judged("a", edit, 0)
    other = lab.folder / "elsewhere"
    for name in ("own", "shared_rules"):
        shutil.copytree(lab.folder / name, other / name)
    monkeypatch.chdir(other)
    monkeypatch.setattr(lab, "folder", other)
    (other / "on_path").mkdir()
    judged("b", edit, 0)
    assert lab.json("compare", "../a", "b")["tasks"][0]["differs"] == []


def test_an_evaluation_goes_on_only_with_the_verifiers_that_it_began_with(lab, judged, model_dir):
    """Half of its results were lost; the table that it judges by was edited meanwhile."""
    edit = EDITS["table by a computed path"]
    judged("a", edit, 0)
    results = lab.folder / "a" / "lab_letters" / "results.jsonl"
    lines = results.read_text().splitlines(keepends=True)
    results.write_text("".join(lines[:6]))
    write(lab.folder, edit.after)
    more = ("--set", "rewards=[{use: ./own/mine.py:score}]", "--limit", "12", "--out", "a")
    command = ("eval", model_dir, "--task", "lab/letters", LAX, *more)
    refused = lab.rlvr(*command, check=2).stderr
    assert "do not judge as when this evaluation began" in refused
    assert "limits.json" in refused
    write(lab.folder, edit.before)
    lab.rlvr(*command)
    assert sum(1 for _ in results.open()) == 12


def test_results_without_a_record_are_compared_as_before(lab, judged):
    """An earlier version wrote none."""
    judged("a", EDITS["table by a computed path"], 0)
    judged("b", EDITS["table by a computed path"], 1)
    (lab.folder / "a" / "lab_letters" / "judging.json").unlink()
    lab.json("compare", "a", "b")
