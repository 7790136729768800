import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlvr_core.plugins.host import load_host
from rlvr_devkit.schema import config_schema, schema_command

PLUGIN = """
from rlvr_core.api import hookimpl

@hookimpl
def register_datasets(registrar):
    registrar.add("sums", "rlvr_toy_parts:Sums", summary="Sums.")

@hookimpl
def register_losses(registrar):
    registrar.add("relative", "rlvr_toy_parts:Relative", summary="Compares.")

@hookimpl
def register_verifiers(registrar):
    registrar.add("gone", "rlvr_toy_nowhere:Gone", summary="Its module is missing.")
    registrar.add("odd", "rlvr_toy_parts:Odd", summary="Its Config is no model.")
"""

PARTS = """
from typing import Literal
from rlvr_core.api import ComponentConfig

class Range(ComponentConfig):
    low: int = 0

class Sums:
    class Config(ComponentConfig):
        split: Literal["train", "test"] = "train"
        '''Which part.'''
        numbers: Range = Range()

class Relative:
    class Config(ComponentConfig):
        clip: float

class Odd:
    Config = dict
"""


@pytest.fixture(scope="module")
def host(installed_plugin):
    folder = installed_plugin("toy", {"rlvr_toy.py": PLUGIN, "rlvr_toy_parts.py": PARTS})
    sys.path.insert(0, str(folder))
    try:
        yield load_host({})
    finally:
        sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def schema(host):
    return config_schema(host)[0]


def named(schema):
    return {option["const"] for option in schema["anyOf"][0]["anyOf"]}


def tie(schema, name):
    """The schema of ``with`` when ``use`` is ``name``."""
    ties = schema["anyOf"][1]["allOf"]
    (chosen,) = [tied for tied in ties if name in tied["if"]["properties"]["use"]["enum"]]
    return chosen["then"]


def test_with_is_tied_to_use(schema):
    source = schema["$defs"]["DataSection"]["properties"]["sources"]["items"]
    assert {"toy/sums", "sums"} <= named(source)
    options = tie(source, "toy/sums")["properties"]["with"]
    assert options["additionalProperties"] is False
    assert options["properties"]["split"]["description"] == "Which part."
    assert {"weight", "use", "with"} <= set(source["anyOf"][1]["properties"])
    assert tie(source, "sums") == tie(source, "toy/sums")


def test_a_component_with_required_options_needs_with_in_lists_only(schema):
    loss = schema["properties"]["loss"]
    assert "required" not in loss["anyOf"][1]
    assert "required" not in tie(loss, "toy/relative")["properties"]["with"]
    verifier = schema["properties"]["rewards"]["items"]
    assert verifier["anyOf"][1]["required"] == ["use"]


def test_auto_takes_no_options(schema):
    assert tie(schema["properties"]["engine"], "auto")["properties"]["with"]["maxProperties"] == 0
    assert "auto" in named(schema["properties"]["rewards"]["items"])
    assert "auto" not in named(schema["properties"]["loss"])


def test_definitions_of_components_are_found_where_they_are_referred_to(schema):
    def refs(node):
        if isinstance(node, dict):
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            for value in node.values():
                yield from refs(value)
        elif isinstance(node, list):
            for value in node:
                yield from refs(value)

    used = set(refs(schema))
    assert "#/$defs/dataset.toy.sums.Range" in used
    assert used == {f"#/$defs/{name}" for name in schema["$defs"]}


def test_required_keys_are_asked_for_only_without_extends(schema):
    assert "required" not in schema
    assert schema["if"] == {"not": {"required": ["extends"]}}
    assert schema["then"]["required"] == ["model", "data", "train"]
    assert schema["then"]["properties"]["train"] == {"required": ["steps"]}
    assert "required" not in schema["$defs"]["TrainSection"]
    assert "extends" in schema["properties"]


def test_numbers_and_choices_may_be_environment_variables(schema):
    steps = schema["$defs"]["TrainSection"]["properties"]["steps"]
    assert steps["type"] == ["integer", "string"]
    assert steps["exclusiveMinimum"] == 0
    dtype = schema["$defs"]["ModelSection"]["properties"]["dtype"]
    assert dtype["anyOf"][0]["enum"] == ["float32", "bfloat16", "float16"]


def test_components_that_do_not_load_are_told_and_left_open(host):
    schema, troubles = config_schema(host)
    assert any(line.startswith("toy/gone: ") for line in troubles)
    assert any(line.startswith("toy/odd: ") for line in troubles)
    assert {"toy/gone", "toy/odd"} <= named(schema["properties"]["rewards"]["items"])


def test_it_is_written_whole(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(schema_command, ["--out", "rlvr.schema.json"])
    assert done.exit_code == 0, done.output
    assert "wrote rlvr.schema.json" in done.output
    assert "then" in json.loads(Path("rlvr.schema.json").read_text())
    assert [path.name for path in Path().iterdir()] == ["rlvr.schema.json"]
