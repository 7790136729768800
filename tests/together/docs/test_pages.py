"""What the pages show can be typed: configs resolve, commands parse, links lead somewhere."""

import ast
import re
from pathlib import Path

import click
import pytest

from rlvr_cluster.sweeps.spec import read_sweep
from rlvr_core.api import ConfigError, config_class
from rlvr_core.config.dialect import read
from rlvr_core.config.keys import component_keys, run_keys
from rlvr_core.config.resolve import resolve_file
from rlvr_core.config.tree import COMPONENTS, dotted
from rlvr_core.eval.config import eval_config, read_eval_config
from rlvr_core.plugins.host import load_host
from rlvr_core.plugins.registry import KINDS
from tests.support import pages
from tools.commands import commands as click_commands

ROOT = pages.ROOT
BASE = """
model: {path: "tiny:math/arithmetic"}
data: {sources: [math/arithmetic]}
train: {steps: 300}
eval: {tasks: [math/gsm8k-test]}
"""
"""What a fragment of a config is put on top of."""

BLOCKS = list(pages.yaml_blocks())


@pytest.fixture(scope="module")
def host():
    return load_host({})


def test_there_are_blocks_commands_and_links_to_look_at():
    assert len(BLOCKS) > 50
    assert len(list(pages.commands("rlvr"))) > 80
    assert sum(len(pages.links(page)) for page in pages.PAGES) > 300


@pytest.mark.parametrize(("page", "line", "text"), BLOCKS, ids=[f"{p}:{n}" for p, n, _ in BLOCKS])
def test_every_yaml_block_is_a_config_or_fits_into_one(
    page, line, text, host, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for variable in re.findall(r"\$\{env:(\w+)\}", text):
        monkeypatch.setenv(variable, "value")
    Path("examples").symlink_to(ROOT / "examples")
    hello = ROOT / "examples" / "rlvr_hello" / "rlvr_hello.py"
    text = text.replace("hello/greeting", f"{hello}:Greeting")
    for file, attribute in re.findall(r"\./(\w+\.py):(\w+)", text):
        with Path(file).open("a") as code:
            code.write(_component(attribute, ROOT / page))
    keys = set(_plain(text))
    if not keys:
        return  # comments alone
    if "parameters" in keys:
        Path("sweep.yaml").write_text(text)
        read_sweep("sweep.yaml")
    elif "tasks" in keys:
        Path("eval.yaml").write_text(text)
        draft = read_eval_config(Path("eval.yaml"), ())
        eval_config(draft, {} if "model" in keys else {"model": {"path": "m"}})
    else:
        if "extends" in keys:
            base = Path(_plain(text)["extends"])
            if not base.exists():
                base.write_text(BASE)
        elif not {"model", "data", "train"} <= keys:
            Path("base.yaml").write_text(BASE)
            text = f"extends: base.yaml\n{text}"
        Path("run.yaml").write_text(text)
        resolve_file("run.yaml", (), host)


def _plain(text):
    node = read(text, "block")
    return {} if node is None else node.plain()


def _component(attribute, page):
    """Code of a component that a page names by a file of the reader's."""
    if attribute[0].islower():
        return f"def {attribute}(text, answer):\n    return text == answer\n"
    shown = [code for _, code, _ in pages.fences(page) if f"class {attribute}:" in code]
    if shown:
        return "from rlvr_core.api import *\n" + shown[0]
    return f"from rlvr_core.rollout.samplers.epochs import Shuffle as {attribute}\n"


def test_every_command_exists_with_its_options_and_arguments():
    known = click_commands()
    wrong = []
    for page, line, words in pages.commands("rlvr"):
        if words[:1] in ([], ["--help"], ["--version"], ["PLUGIN"]):
            continue
        depth = 1
        while " ".join(["rlvr", *words[: depth + 1]]) in known and depth < len(words):
            depth += 1
        command = known.get(" ".join(["rlvr", *words[:depth]]))
        fault = "no such command" if command is None else _fault(command, words[depth:])
        if fault:
            wrong.append(f"{page}:{line}: rlvr {' '.join(words)}: {fault}")
    assert not wrong, "\n".join(wrong)


def _fault(command, arguments):
    """What click says of these words; the files need not be there."""
    if "--help" in arguments:
        return ""
    if isinstance(command, click.Group):
        return "a command of the group is missing"
    try:
        command.make_context("rlvr", list(arguments))
    except click.MissingParameter as error:
        return error.format_message()
    except click.BadParameter as error:
        wanted = error.format_message()
        stands_for_one = re.search(r"'[A-Z]+'", wanted)  # --n N
        no_file = "does not exist" in wanted or "No such file" in wanted
        return "" if no_file or stands_for_one else wanted
    except click.UsageError as error:
        return error.format_message()
    return ""


def test_every_target_of_make_exists():
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    told = [
        (page, line, word)
        for page, line, words in pages.commands("make")
        for word in words
        if re.fullmatch(r"[a-z][\w-]*", word)
    ]
    assert len(told) > 5
    assert [each for each in told if each[2] not in targets] == []


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_every_link_leads_to_a_file_and_an_anchor(page):
    broken = []
    for target in pages.links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if (
            not file.exists()
            or not file.is_relative_to(ROOT)
            or (anchor and file.suffix == ".md" and anchor not in set(pages.anchors(file)))
        ):
            broken.append(target)
    assert broken == []


def test_every_message_of_the_troubleshooting_page_is_in_the_code(host, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    headings = re.findall(r"^### `(.+)`$", text, re.M)
    foreign = {"operator torchvision::nms does not exist", "CUDA out of memory"}
    Path("run.yaml").write_text(BASE + "trian: {steps: 1}\nsampling: {m: 1}\n")
    with pytest.raises(ConfigError) as caught:
        resolve_file("run.yaml", (), host)
    code = str(caught.value) + "\n"
    code += "\n".join(_literals(file) for file in (ROOT / "rlvr_core").rglob("*.py"))
    assert len(headings) > 15
    for heading in set(headings) - foreign:
        fixed = [part for part in heading.split("…") if part.strip(" '")]
        pattern = "[^\n]*?".join(re.escape(part) for part in fixed)
        assert re.search(pattern, code), heading


def _literals(file):
    """Every text of a module on a line of its own, with three dots for what is put into it."""
    lines = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            lines.append(node.value.replace("\n", " "))
        elif isinstance(node, ast.JoinedStr):
            lines.append(
                "".join(
                    part.value if isinstance(part, ast.Constant) else "…" for part in node.values
                ).replace("\n", " ")
            )
    return "\n".join(lines)


def test_what_other_frameworks_options_are_here_exists(host):
    """``docs/from-others.md``, whose tables have our names in the second column."""
    known = {key.path for key in run_keys()}
    places = {kind: dotted(loc).removesuffix(".*") for loc, kind in reversed(COMPONENTS.items())}
    for kind in KINDS:
        for entry in host.registry.of(kind):
            known |= {entry.name, entry.leaf}
            keys = component_keys(config_class(entry.load()), ())
            known |= {f"{places.get(kind)}.{key.path}" for key in keys}
    text = (ROOT / "docs" / "from-others.md").read_text(encoding="utf-8")
    text = text.partition("## From open-instruct\n")[2]
    told = [
        word
        for row in re.findall(r"^\| [^|]+ \| ([^|]+) \|", text, re.M)
        for word in re.findall(r"`([^`]+)`", row)
    ]
    assert len(told) > 40
    assert [word for word in told if word not in known] == []
