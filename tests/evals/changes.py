"""Changes after which a number means something else, and changes after which it does not.

Written down before the code of the specification was read. Each is made in a copy of one small
project (a tiny model, rows, a verifier with helpers, a plugin in a checkout), and driven by `rlvr`
alone. A change counts as found if the command refuses or names it: its output matches the words. Of
changes that matter not, the command must go through and print what it prints without any change.

    RLVR_DATA=FOLDER python -m tests.evals.changes MODEL WORK [--only NAME ...] [--out FILE]
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

RLVR = Path(sys.executable).parent / "rlvr"

REWARD = """
import json, os, pathlib
from helper import last_number

ALIASES = pathlib.Path(__file__).parent / "aliases.json"

def reward(text, answer):
    from lib.forms import tidy

    found = tidy(last_number(text))
    if os.environ.get("LENIENT"):
        return found[-1:] == str(answer)[-1:]
    return found == json.loads(ALIASES.read_text()).get(answer, answer)
"""
HELPER = """
import re

def last_number(text):
    return (re.findall(r"\\d+", text) or [""])[-1]
"""
FORMS = "def tidy(number):\n    return number.lstrip('0')\n"
ACME_PLUGIN = """
from rlvr_core.api import hookimpl

@hookimpl
def register_verifiers(registrar):
    registrar.add("number", "acme.verifiers:Number", summary="The last number.")
"""
ACME = """
import acme_numbers
from rlvr_core.api import NoConfig, Verdict

class Number:
    Config = NoConfig

    def __init__(self, config):
        pass

    def verify(self, problem, completion):
        passed = acme_numbers.last(completion.text) == problem.spec["answer"]
        return Verdict(float(passed), passed=passed)
"""
ACME_NUMBERS = 'import re\n\ndef last(text):\n    return (re.findall(r"\\d+", text) or [""])[-1]\n'
TEMPLATE = (
    "{% for m in messages %}{{ m['content'] }}{% if thinking %} Think.{% endif %}"
    "{% if m['role'] == 'assistant' %}{{ '<|endoftext|>' }}{% endif %}{% endfor %}"
)


class Project:
    """A folder as a user has it, and what the command line says in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {
            "PYTHONPATH": ":".join(
                [str(folder / "site"), str(folder / "checkout"), os.environ.get("PYTHONPATH", "")]
            ),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def rlvr(self, *arguments: object, cwd: Path | None = None) -> tuple[int, str]:
        """Exit code and all that it printed."""
        done = subprocess.run(
            [RLVR, *map(str, arguments)],
            cwd=cwd or self.folder,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    def edit(self, name: str, before: str, after: str) -> None:
        """Replace a piece of a file."""
        path = self.folder / name
        assert before in path.read_text(), (name, before)
        path.write_text(path.read_text().replace(before, after))

    def edit_json(self, name: str, **values: Any) -> None:
        """Set keys of a JSON file."""
        path = self.folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    def config(self, name: str, *changes: tuple[str, Any]) -> None:
        """Set keys ('a.b.0.c') of a YAML file."""
        path = self.folder / name
        content = yaml.safe_load(path.read_text())
        for key, value in changes:
            *above, last = key.split(".")
            place = content
            for part in above:
                place = place[int(part)] if isinstance(place, list) else place.setdefault(part, {})
            place[last] = value
        path.write_text(yaml.safe_dump(content))

    def rows(self, name: str, change: Callable[[list[dict[str, Any]]], Any]) -> None:
        """Change rows of a JSON lines file."""
        path = self.folder / name
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        change(rows)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    def version(self, package: str, version: str) -> None:
        """Another version of an installed library, as far as its metadata say."""
        folder = self.folder / "site" / f"{package}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        )


def make(folder: Path, model: Path) -> Project:
    """The project before any change."""
    folder.mkdir(parents=True)
    shutil.copytree(model, folder / "model")
    for name, text in {
        "reward.py": REWARD,
        "helper.py": HELPER,
        "lib/__init__.py": "",
        "lib/forms.py": FORMS,
        "aliases.json": "{}",
        "checkout/acme/__init__.py": "",
        "checkout/acme/plugin.py": ACME_PLUGIN,
        "checkout/acme/verifiers.py": ACME,
        "site/acme_numbers.py": ACME_NUMBERS,
        "site/acme-0.1.dist-info/METADATA": "Metadata-Version: 2.1\nName: acme\nVersion: 0.1\n",
        "site/acme-0.1.dist-info/entry_points.txt": "[rlvr]\nacme = acme.plugin\n",
        "site/acme-0.1.dist-info/direct_url.json": json.dumps(
            {"url": f"file://{folder / 'checkout'}", "dir_info": {"editable": True}}
        ),
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "acme"]):
        subprocess.run([*git, *command], cwd=folder / "checkout", check=True)
    for name, first in (("rows.jsonl", 0), ("held.jsonl", 3000)):
        numbers = [(k * 4567) % 8100 for k in range(first, first + 120)]
        pairs = [(10 + k // 90, 10 + k % 90) for k in numbers]
        rows = [{"id": f"s{a}_{b}", "a": a, "b": b, "answer": str(a + b)} for a, b in pairs]
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))

    def data(path: str) -> dict[str, Any]:
        options = {"path": path, "template": "What is {a}+{b}?", "id": "id"}
        return {"use": "core/jsonl", "with": {**options, "verifier": "./reward.py:reward"}}

    task = {"use": "core/dataset", "with": {"data": data("held.jsonl"), "max_tokens": 44}}
    evaluation = {"model": {"path": "model"}, "tasks": [task], "limit": 30, "seed": 0}
    run = {
        "run": {"name": "r", "dir": "runs"},
        "model": {"path": "model"},
        "data": {"sources": [data("rows.jsonl")]},
        "sampling": {"n": 4, "max_tokens": 44},
        "engine": "core/transformers",
        "train": {"steps": 2, "prompts_per_step": 4, "lr": 1e-4},
        "eval": {"tasks": [json.loads(json.dumps({**task}))]},
        "checkpoint": {"every": 1},
    }
    small = data("held.jsonl")
    small["with"]["limit"] = 10
    run["eval"]["tasks"][0]["with"]["data"] = small  # type: ignore[index]
    (folder / "eval.yaml").write_text(yaml.safe_dump(evaluation))
    (folder / "run.yaml").write_text(yaml.safe_dump(run))
    return Project(folder)


Change = Callable[[Project], Any]


def plain(project: Project) -> None:
    """No change."""


# Changes of files, for evaluations, runs and resumption alike ---------------------------------


def weights(project: Project) -> None:
    from safetensors.torch import load_file, save_file

    path = project.folder / "model" / "model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"] *= 1.01
    save_file(tensors, path, {"format": "pt"})


def tokenizer(project: Project) -> None:
    path = project.folder / "model" / "tokenizer.json"
    content = json.loads(path.read_text())
    names = {i: n for n, i in content["model"]["vocab"].items()}
    content["model"]["vocab"] |= {names[40]: 41, names[41]: 40}
    path.write_text(json.dumps(content))


def chat_template(project: Project) -> None:
    project.edit_json("model/tokenizer_config.json", chat_template=TEMPLATE)


def gold(project: Project, name: str) -> None:
    project.rows(name, lambda rows: rows[3].update(answer="17"))


FILES: dict[str, tuple[Change, str]] = {
    "verifier_body": (
        lambda p: p.edit("reward.py", "found[-1:]", "found[:1]"),
        r"reward\.py|verifier|code",
    ),
    "verifier_helper": (lambda p: p.edit("helper.py", "[-1]", "[0]"), r"helper|reward|verifier"),
    "verifier_lazy": (
        lambda p: p.edit("lib/forms.py", "lstrip", "rstrip"),
        r"forms|reward|verifier",
    ),
    "verifier_table": (
        lambda p: (p.folder / "aliases.json").write_text('{"100": "101"}'),
        r"aliases|reward|verifier",
    ),
    "weights": (weights, r"weights|model"),
    "rope": (
        lambda p: p.edit_json(
            "model/config.json", rope_parameters={"rope_type": "default", "rope_theta": 5000.0}
        ),
        r"config|model|weights",
    ),
    "generation_eos": (
        lambda p: p.edit_json("model/generation_config.json", eos_token_id=[0, 77]),
        r"generation|stop|eos|end-of-sequence|model",
    ),
    "tokenizer": (tokenizer, r"token"),
    "special_token": (
        lambda p: p.edit_json("model/tokenizer_config.json", eos_token="<pad>"),
        r"token|stop|eos",
    ),
    "gold": (lambda p: gold(p, "held.jsonl"), r"problem|data|held"),
}

ACME_FILES: dict[str, tuple[Change, str]] = {
    "plugin_uncommitted": (
        lambda p: p.edit("checkout/acme/verifiers.py", "passed = ", "passed = not "),
        r"acme|verifier",
    ),
    "plugin_library": (
        lambda p: p.edit("site/acme_numbers.py", "[-1]", "[0]"),
        r"acme|verifier",
    ),
}


def acme(project: Project) -> None:
    """The plugin judges."""
    for name in ("eval.yaml", "run.yaml"):
        project.config(name, ("rewards", ["acme/number"]))


def chat(project: Project) -> None:
    """The model is a chat model."""
    plain = TEMPLATE.replace("{% if thinking %} Think.{% endif %}", "")
    project.edit_json("model/tokenizer_config.json", chat_template=plain)


def answers(project: Project) -> None:
    """A verifier of rlvr-math judges."""
    project.config("eval.yaml", ("rewards", ["math/answer"]))


def _eval(*changes: tuple[str, Any]) -> Change:
    return lambda project: project.config("eval.yaml", *changes)


DATA = "tasks.0.with.data.with."

#: Changes between two evaluations: name: (before both, change, words).
EVALS: dict[str, tuple[Change, Change, str]] = {
    **{name: (plain, change, words) for name, (change, words) in FILES.items()},
    **{name: (acme, change, words) for name, (change, words) in ACME_FILES.items()},
    "prompt_edited": (
        plain,
        lambda p: p.rows("held.jsonl", lambda rows: rows[2].update(a=11)),
        r"problem|prompt|data",
    ),
    "chat_template": (chat, chat_template, r"prompt|template|token"),
    "template_option": (
        lambda p: (chat(p), chat_template(p)),
        _eval(("prompt.template_options", {"thinking": True})),
        r"prompt|template",
    ),
    "system": (plain, _eval(("prompt.system", "Be exact.")), r"prompt|system"),
    "prefix": (plain, _eval(("prompt.prefix", " ")), r"prompt|prefix"),
    "row_template": (
        plain,
        _eval((DATA + "template", "What is {b}+{a}?")),
        r"prompt|template|problem",
    ),
    "stop": (plain, _eval((DATA + "stop", ["}"])), r"stop"),
    "max_tokens": (plain, _eval(("tasks.0.with.max_tokens", 30)), r"max_tokens"),
    "limit": (plain, _eval(("limit", 20)), r"limit|problems"),
    "seed": (plain, _eval(("seed", 1)), r"seed"),
    "subset": (
        plain,
        lambda p: p.rows("held.jsonl", lambda rows: rows.reverse()),
        r"problems",
    ),
    "dtype": (plain, _eval(("model.dtype", "bfloat16")), r"dtype|bfloat16"),
    "attention": (plain, _eval(("model.attention", "eager")), r"attention|eager"),
    "engine": (plain, _eval(("engine", "core/vllm")), r"engine|vllm"),
    "judge": (plain, _eval(("rewards", ["math/boxed"])), r"verifier|reward|boxed"),
    "reward_order": (
        _eval(("rewards", ["math/boxed", "math/boxed-format"])),
        _eval(("rewards", ["math/boxed-format", "math/boxed"])),
        r"verifier|reward|boxed",
    ),
    "extraction": (
        answers,
        _eval(("rewards", [{"use": "math/answer", "with": {"extract": "last-number"}}])),
        r"extract",
    ),
    "library_of_verifier": (answers, lambda p: p.version("sympy", "99.9"), r"sympy"),
    "library": (plain, lambda p: p.version("transformers", "99.9"), r"transformers"),
    "environment_variable": (
        plain,
        lambda p: p.environment.update(LENIENT="1"),
        r"LENIENT|environment|verdict|verifier|reward",
    ),
}

#: Options of `rlvr passk`: (before, after, words).
PASSK: dict[str, tuple[list[str], list[str], str]] = {
    "n": (["--n", "2"], ["--n", "3"], r"\bn\b|completions|samples"),
    "temperature": (["--n", "2"], ["--n", "2", "--temperature", "0.9"], r"temperature"),
    "top_p": (["--n", "2"], ["--n", "2", "--top-p", "0.9"], r"top_p"),
}

#: Changes that matter not.
NOTHING: dict[str, Change] = {
    "nothing": plain,
    "moved": lambda p: (
        (p.folder / "model").rename(p.folder / "elsewhere"),
        p.config("eval.yaml", ("model.path", "elsewhere")),
    ),
    "touched": lambda p: [os.utime(f, (1, 1)) for f in p.folder.rglob("*") if f.is_file()],
    "hash_seed": lambda p: p.environment.update(PYTHONHASHSEED="7"),
    "key_order": lambda p: (p.folder / "eval.yaml").write_text(
        json.dumps(
            dict(reversed(yaml.safe_load((p.folder / "eval.yaml").read_text()).items())), indent=1
        )
    ),
    "readme_in_model": lambda p: (p.folder / "model" / "README.md").write_text("A model.\n"),
    "byte_code": lambda p: p.environment.pop("PYTHONDONTWRITEBYTECODE"),
    "gzipped_rows": lambda p: (p.folder / "held.jsonl").write_bytes(
        gzip.compress((p.folder / "held.jsonl").read_bytes())
    ),
    "longer_file": lambda p: p.rows(
        "held.jsonl", lambda rows: rows.append({"id": "z", "a": 1, "b": 1, "answer": "2"})
    ),
    "notes_beside": lambda p: (p.folder / "notes.py").write_text("x = 1\n"),
    "locale": lambda p: p.environment.update(LC_ALL="C", TZ="Asia/Tokyo"),
    "threads": lambda p: p.environment.update(OMP_NUM_THREADS="2"),
    "other_config_name": plain,
    "other_folder": plain,
}

#: Changes of a run, for `rlvr diff`.
DIFFS: dict[str, tuple[Change, Change, str]] = {
    **{name: (plain, change, words) for name, (change, words) in FILES.items()},
    **{name: (acme, change, words) for name, (change, words) in ACME_FILES.items()},
    "chat_template": (chat, chat_template, r"prompt|template|token"),
    "rows": (plain, lambda p: gold(p, "rows.jsonl"), r"data|rows"),
    "run_temperature": (
        plain,
        lambda p: p.config("run.yaml", ("sampling.temperature", 0.9)),
        r"temperature",
    ),
    "library": (plain, lambda p: p.version("transformers", "99.9"), r"transformers"),
    "omp_threads": (
        plain,
        lambda p: p.environment.update(OMP_NUM_THREADS="2"),
        r"thread",
    ),
    "environment_variable": EVALS["environment_variable"],
}
#: Those after which a run is resumed.
RESUMED = {
    name: DIFFS[name] for name in DIFFS if name not in ("run_temperature", "environment_variable")
}


def evaluate(project: Project, out: Path, before: str = "eval.yaml") -> tuple[int, str]:
    return project.rlvr("eval", "--config", before, "--out", out, "--allow-truncation")


def changed(text: str, words: str, quiet: str) -> list[str]:
    """Lines that match and that nothing else than the change has brought."""
    known = set(quiet.splitlines())
    return [x for x in text.splitlines() if x not in known and re.search(words, x, re.I)]


class Lab:
    """All changes, each in the folder ``live``, so that paths stay the same."""

    def __init__(self, model: Path, work: Path) -> None:
        shutil.rmtree(work, ignore_errors=True)
        self.work, self.model = work, model
        self.results: list[dict[str, Any]] = []
        self.quiet = ""

    def project(self, *changes: Change) -> Project:
        """A new copy with changes."""
        shutil.rmtree(self.work / "live", ignore_errors=True)
        project = make(self.work / "live", self.model)
        for change in changes:
            change(project)
        return project

    def note(self, part: str, name: str, good: bool, code: int, text: str) -> None:
        """Keep a result and print it."""
        entry = {"part": part, "name": name, "good": good, "code": code, "text": text}
        self.results.append(entry)
        print(f"{part:8} {name:22} {'ok' if good else 'MISSED'} (exit {code})", flush=True)

    def evals(self, only: list[str]) -> None:
        """`rlvr eval` before and after, `rlvr compare` of both."""
        bases: dict[Change, Path] = {}
        for name in ("plain", "again"):
            evaluate(self.project(), self.work / "results" / name)
        results = [self.work / "results" / name for name in ("plain", "again")]
        self.quiet = self.project().rlvr("compare", *results)[1]
        bases[plain] = results[0]
        for name, (first, change, words) in EVALS.items():
            if only and name not in only:
                continue
            if first not in bases:
                bases[first] = self.work / "results" / f"{name}-before"
                evaluate(self.project(first), bases[first])
            after = self.work / "results" / f"{name}-after"
            project = self.project(first, change)
            code, text = evaluate(project, after)
            if code == 0:
                code, text = project.rlvr("compare", bases[first], after)
            self.note("eval", name, bool(changed(text, words, self.quiet)), code, text)
        for name, (options, others, words) in PASSK.items():
            if only and name not in only:
                continue
            outs = []
            for label, flags in (("a", options), ("b", others)):
                outs.append(self.work / "results" / f"{name}-{label}")
                config = ["--config", "eval.yaml", "--k", "1", "--allow-truncation"]
                project = self.project()
                project.rlvr("passk", *config, *flags, "--limit", "8", "--out", outs[-1])
            code, text = self.project().rlvr("compare", *outs)
            self.note("passk", name, bool(changed(text, words, self.quiet)), code, text)

    def nothing(self, only: list[str]) -> None:
        """The same with changes that matter not."""
        before = self.work / "results" / "plain"
        if not before.exists():
            evaluate(self.project(), before)
        if not self.quiet:
            again = self.work / "results" / "again"
            evaluate(self.project(), again)
            self.quiet = self.project().rlvr("compare", before, again)[1]
        for name, change in NOTHING.items():
            if only and name not in only:
                continue
            project = self.project(change)
            out = self.work / "results" / f"nothing-{name}"
            if name == "other_folder":
                shutil.rmtree(self.work / "away", ignore_errors=True)
                project.folder.rename(self.work / "away")
                project = Project(self.work / "away")
            if name == "other_config_name":
                (project.folder / "eval.yaml").rename(project.folder / "e2.yaml")
                code, text = evaluate(project, out, "e2.yaml")
            else:
                code, text = evaluate(project, out)
            if code == 0:
                code, text = project.rlvr("compare", before, out)
            suspicion = r"weights|verifier|code|differ|problems? (changed|edited)|rows|tokeniz"
            said = changed(text, suspicion, self.quiet)
            self.note("nothing", name, code == 0 and not said, code, text)

    def shots(self, data: Path) -> None:
        """Few-shot examples of a task."""
        outs = []
        for shots in (0, 2):
            outs.append(self.work / "results" / f"shots{shots}")
            task = ["--task", "math/gsm8k-test", "--with", f"path={data / 'gsm8k/test.jsonl'}"]
            task += ["--with", f"shots={shots}", "--with", "max_tokens=8", "--limit", "6"]
            self.project().rlvr("eval", "model", *task, "--out", outs[-1], "--allow-truncation")
        code, text = self.project().rlvr("compare", *outs)
        self.note("eval", "shots", bool(re.search("shots|prompt", text)), code, text)

    def runs(self, only: list[str]) -> None:
        """`rlvr diff` of a run before and one after; `rlvr run --resume` after the change."""
        known: dict[Change, Path] = {}
        for name, (first, change, words) in DIFFS.items():
            if only and name not in only:
                continue
            project = self.project(first)
            runs = project.folder / "runs"
            if first not in known:
                project.rlvr("run", "run.yaml", "--display", "plain")
                known[first] = self.work / "before" / name
                shutil.copytree(runs, known[first], symlinks=True)
            elif name in RESUMED:
                shutil.copytree(known[first], runs, symlinks=True)
            change(project)
            (before,) = known[first].glob("r-*")
            if name in RESUMED:
                kept = runs / before.name
                more = ["--set", "train.steps=3", "--display", "plain"]
                code, text = project.rlvr("run", "--resume", kept, *more)
                state = kept / "run.json"
                text += "\n" + json.dumps(json.loads(state.read_text()).get("resumed_over"))
                self.note("resume", name, bool(changed(text, words, "")), code, text)
            project = self.project(first, change)
            code, text = project.rlvr("run", "run.yaml", "--display", "plain")
            found = list((project.folder / "runs").glob("r-*"))
            if found:
                code, text = project.rlvr("diff", before, found[0])
            self.note("diff", name, bool(changed(text, words, "")), code, text)

    def adapters(self) -> None:
        """An adapter, the same merged, and the same over another base."""
        project = self.project(lambda p: p.config("run.yaml", ("model.lora", {"rank": 4})))
        project.rlvr("run", "run.yaml", "--display", "plain")
        outs = [self.work / "results" / f"adapter{n}" for n in range(3)]
        (run,) = (project.folder / "runs").glob("r-*")
        common = ["--config", "eval.yaml", "--allow-truncation", "--set"]
        project.rlvr("eval", *common, f"model.path={run}", "--out", outs[0])
        project.rlvr("export", run, project.folder / "merged", "--merge")
        project.rlvr("eval", *common, "model.path=merged", "--out", outs[1])
        code, text = project.rlvr("compare", outs[0], outs[1])
        words = r"merged|adapter|model|weights"
        self.note("eval", "merged", bool(changed(text, words, self.quiet)), code, text)
        weights(project)
        code, text = project.rlvr("eval", *common, f"model.path={run}", "--out", outs[2])
        if code == 0:
            code, text = project.rlvr("compare", outs[0], outs[2])
        words = r"base|model|weights"
        self.note("eval", "base_of_adapter", bool(changed(text, words, self.quiet)), code, text)

    def regrades(self) -> None:
        """Stored answers after a helper of the verifier was edited."""
        project = self.project()
        evaluate(project, self.work / "results" / "graded")
        source = self.work / "results" / "graded"
        task = next(p.parent for p in source.rglob("completions.jsonl"))
        code, text = project.rlvr("regrade", task, "--verifier", "./reward.py:reward", "--json")
        same = code == 0 and not re.search(r'"(changed|differ\w*|outcomes_differ\w*)": [1-9]', text)
        self.note("regrade", "same", same, code, text)
        project.edit("helper.py", "[-1]", "[0]")
        code, text = project.rlvr("regrade", task, "--verifier", "./reward.py:reward")
        self.note("regrade", "helper", bool(re.search("differ", text)), code, text)


def main() -> None:
    """Make the changes and print what was found."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--parts", nargs="*", default=["evals", "nothing", "rest", "runs"])
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    lab = Lab(arguments.model.resolve(), arguments.work.resolve())
    for part in arguments.parts:
        if part == "rest":
            lab.adapters()
            lab.regrades()
            if "RLVR_DATA" in os.environ:
                lab.shots(Path(os.environ["RLVR_DATA"]))
        else:
            getattr(lab, part)(arguments.only)
        if arguments.out:
            arguments.out.write_text(json.dumps(lab.results, indent=1))
    for part in dict.fromkeys(r["part"] for r in lab.results):
        of = [r for r in lab.results if r["part"] == part]
        print(
            part,
            sum(r["good"] for r in of),
            "of",
            len(of),
            [r["name"] for r in of if not r["good"]],
        )


if __name__ == "__main__":
    main()
