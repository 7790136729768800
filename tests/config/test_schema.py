import pytest

from rlvr_core.config.keys import run_keys
from rlvr_core.config.schema import config_schema


@pytest.fixture(scope="module")
def schema(host):
    return config_schema(host)[0]


def named(schema):
    return {option["const"] for option in schema["anyOf"][0]["anyOf"]}


def tie(schema, name):
    """The schema of ``with`` when ``use`` is ``name``."""
    ties = schema["anyOf"][1]["allOf"]
    (found,) = [one for one in ties if name in one["if"]["properties"]["use"]["enum"]]
    return found["then"]


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

    found = set(refs(schema))
    assert "#/$defs/dataset.toy.sums.Range" in found
    assert found == {f"#/$defs/{name}" for name in schema["$defs"]}


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


def test_every_key_of_the_model_is_explained():
    assert [key.path for key in run_keys() if not key.description] == []
