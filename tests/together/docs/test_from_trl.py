"""docs/from-trl.md names every option of the installed TRL, and only keys of ours that exist."""

import ast
import dataclasses
import re
from pathlib import Path

import pytest
from transformers import TrainingArguments

from rlvr_core.api import config_class
from rlvr_core.config.keys import component_keys, run_keys
from rlvr_core.plugins.host import load_host

PAGE = (Path(__file__).parents[3] / "docs" / "from-trl.md").read_text(encoding="utf-8")
KINDS = ("engine", "sampler", "loss", "advantage", "optimizer", "schedule")
OURS = ("core", "algos", "checks", "cluster", "servers")
PLACES = {"optimizer": "train.optimizer", "schedule": "train.lr_schedule"}


def named(cell):
    return re.findall(r"`([^`]+)`", cell)


def rows():
    """Cells of the tables: names of TRL, keys of ours, the rest."""
    options = PAGE.partition("\n## Model\n")[2]
    lines = [line for line in options.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert {len(row) for row in cells} == {3}
    return cells


def components(kind):
    entries = load_host({}).registry.of(kind)
    return {entry.leaf: entry.load() for entry in entries if entry.plugin in OURS}


def keys():
    """Every key there is: of the configuration, and in ``with`` of some component."""
    known = {key.path for key in run_keys()}
    for kind in KINDS:
        for cls in components(kind).values():
            place = (PLACES.get(kind, kind),)
            known |= {key.path for key in component_keys(config_class(cls), place)}
    return known


def trl_source(name):
    """A file of TRL's trainers; read, as importing them takes longer than all that is here."""
    trl = pytest.importorskip("trl", minversion="1.16", reason="the page is of TRL 1.16 (oracle)")
    return (Path(trl.__file__).parent / "trainer" / name).read_text(encoding="utf-8")


def fields(name):
    (cls,) = (node for node in ast.parse(trl_source(name)).body if isinstance(node, ast.ClassDef))
    return {node.target.id for node in cls.body if isinstance(node, ast.AnnAssign)}


def test_every_option_of_trl_is_on_the_page_once():
    inherited = {field.name for field in dataclasses.fields(TrainingArguments)}
    theirs = sorted(inherited | fields("base_config.py") | fields("grpo_config.py"))
    assert len(theirs) > 150
    told = sorted(name for row in rows() for name in named(row[0]))
    assert sorted(set(told)) == told
    assert told == theirs


def test_every_key_on_the_page_exists():
    known = keys()
    checked = 0
    for theirs, ours, why in rows():
        if ours == "nothing":
            assert len(why) > 3, f"{theirs} is left out, and nothing says why"
            continue
        assert named(ours), f"{theirs} has neither a key nor 'nothing'"
        for key in named(ours):
            key, _, value = key.partition(": ")
            assert key in known, f"{theirs}: {key} is no key"
            if value:
                assert value in components(key), f"{theirs}: {key} has no {value}"
            checked += 1
    assert checked > 60
    # the notes, too, name no key that does not exist
    sections = tuple(f"{key.partition('.')[0]}." for key in known if "." in key)
    for _, _, why in rows():
        for key in (name.partition(": ")[0] for name in named(why)):
            if key.startswith(sections) and not key.endswith((".jsonl", "...")):
                assert key in known, key


def test_every_loss_of_trl_is_here():
    """The names its configuration gives."""
    source = trl_source("grpo_config.py")
    (told,) = re.findall(r"loss_type \(`str`.*?mask_truncated_completions", source, re.DOTALL)
    theirs = set(re.findall(r"- `\"(\w+)\"`", told))
    assert len(theirs) >= 8
    # its gradient depends on how rows are packed (T10): it is an oracle of the tests alone
    assert theirs - set(components("loss")) == {"bnpo"}


SCRIPT = Path(__file__).parents[3] / "examples" / "trl_script"


@pytest.mark.parametrize("name", ["rewards.py", "trl_script.py", "config.yaml"])
def test_the_whole_script_on_the_page_is_the_examples(name):
    blocks = re.findall(r"```(?:python|yaml)\n(.*?)```", PAGE, re.DOTALL)
    assert (SCRIPT / name).read_text(encoding="utf-8") in blocks


def test_every_argument_of_the_script_stands_in_a_comment_of_the_config():
    script = ast.parse((SCRIPT / "trl_script.py").read_text(encoding="utf-8"))
    calls = [node for node in ast.walk(script) if isinstance(node, ast.Call)]
    wanted = {
        keyword.arg
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id in ("GRPOConfig", "GRPOTrainer")
        for keyword in call.keywords
    }
    assert len(wanted) > 15
    elsewhere = {  # the command line, a default here, or the machine's
        "args", "output_dir", "bf16", "gradient_checkpointing", "use_cpu", "report_to",
        "save_strategy",
    }  # fmt: skip
    text = (SCRIPT / "config.yaml").read_text(encoding="utf-8")
    comments = " ".join(re.findall(r"#(.*)", text))
    named_there = set(re.findall(r"[a-z_0-9]+", comments))
    assert wanted - elsewhere <= named_there
    assert not elsewhere & (named_there - {"args"})
