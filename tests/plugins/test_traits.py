"""What may be asked of a component stands in its traits, not in a ``getattr`` by a literal."""

import ast
from pathlib import Path

import pytest

import rlvr_core
from rlvr_core.api import EngineTraits, PluginError, SamplerTraits, traits_of

ROOT = Path(rlvr_core.__file__).parent

FOREIGN = {
    # objects of Python, torch, transformers, peft, vLLM and lm_eval, whose versions differ
    "__init__.py": {"__qualname__"},  # of a function
    "builtin/asynchronous/child.py": {"generation_config"},  # of a model
    "builtin/datasets/tables.py": {"strerror"},  # of an OSError or another error
    "builtin/evals/watching.py": {"__file__"},  # of a module
    "builtin/doctor/settings.py": {"weight"},  # of a module of torch
    "builtin/environments/call_json.py": {"keys"},  # of an ast node
    "builtin/lm_eval/ask.py": {"chat_template"},  # of a tokenizer
    "builtin/lm_eval/load.py": {"MULTIMODAL", "UNSAFE_CODE"},  # of a task of lm_eval
    "builtin/invariants/row_sums.py": {"weight"},  # of a module of torch
    "builtin/invariants/saved.py": {"lora_A"},  # of peft's layers
    "builtin/lora/adapter.py": {"base_layer", "full_tensor", "lora_A"},  # of peft's layers
    "builtin/lora/lora.py": {"peft_config"},  # of a model that peft changed
    "builtin/ray/launch.py": {"generation_config"},  # of a model
    # of a model's configuration
    "builtin/vllm/group.py": {"intermediate_size", "num_key_value_heads"},
    "builtin/vllm/process.py": {"_commit_hash"},  # of a model's configuration
    "builtin/vllm/worker.py": {"config", "cpu_linear", "tie_word_embeddings"},  # of vLLM's model
    "cli/main.py": {"reconfigure"},  # of a standard stream, which a test runner replaces
    "cli/output.py": {"ctx"},  # of an exception of click
    "builtin/verifiers/command.py": {"peek"},  # of a standard stream
    "data/prompts.py": {"chat_template", "eos_token_id"},  # of a tokenizer and a configuration
    "engines/decode.py": {"past_key_values"},  # of a model's output
    "engines/transformers.py": {"eos_token_id", "generation_config"},  # of a model
    "host/discovery.py": {"__code__", "_path"},  # of a callable, and of a distribution
    "host/hookcheck.py": {
        "RLVR_API",
        "__file__",
        "__func__",
        "__module__",
        "rlvr_impl",
        "rlvr_spec",
    },
    "host/files.py": {"__file__"},  # of modules
    "builtin/catalog/file_faults.py": {"__module__"},  # of what a file of the user defines
    "builtin/doctor/prompts.py": {"chat_template", "eos_token_id"},  # of tokenizer, configuration
    "builtin/provenance/model.py": {"backend_tokenizer", "chat_template"},  # of a tokenizer
    # of models, their configurations and tokenizers
    "builtin/modelcheck/architecture.py": {"hidden_size", "num_hidden_layers"},
    "builtin/modelcheck/token_checks.py": {"chat_template", "eos_token_id"},
    "builtin/modelcheck/weight_checks.py": {"base_model_prefix", "tie_word_embeddings"},
    "builtin/python/ship.py": {
        "__file__",
        "__module__",
        "__qualname__",
    },  # of modules and functions
    "host/loader.py": {"__file__"},  # of a module
    "builtin/fsdp/loading.py": {"_no_split_modules"},  # of a model
    "builtin/fsdp/sharding.py": {"_no_split_modules"},
    # of layers, peft's among them, and models
    "builtin/invariants/model_files.py": {"base_layer", "config", "eos_token_id", "lora_A"},
    # of sources in a config, only some of which are split; of given answers, which may be made
    "builtin/invariants/data_files.py": {"answers", "split"},
    "builtin/vllm/readback.py": {  # of vLLM's model and layers
        "gather_output",
        "input_size_per_partition",
        "num_kv_head_replicas",
        "reduce_results",
        "tp_rank",
        "cpu_linear",
        "lora_a_stacked",
        "org_vocab_size",
        "output_partition_sizes",
        "packed_modules_mapping",
    },
    "step/model.py": {"rope_parameters"},  # of a model's configuration
    "builtin/planner/shape.py": {"head_dim", "num_key_value_heads"},  # of the same
    "parallel/model_adapter.py": {"full_tensor"},  # of a DTensor
    "builtin/offload/layers.py": {"_no_split_modules"},  # of a model
    "builtin/invariants/moments.py": {"eos_token_id", "generation_config"},  # of a model
    "builtin/packing/packed.py": {"layer_types", "packed"},  # of a model
    # where a component's class attributes are read, for all of rlvr
    "api/components.py": {"Config", "reports"},
    "api/traits.py": {"traits"},
}


def asked_by_literal(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(name), *_]
            ):
                yield name


def test_no_component_is_asked_for_anything_by_a_literal():
    found = {
        (path.relative_to(ROOT).as_posix(), name)
        for path in ROOT.rglob("*.py")
        for name in asked_by_literal(path)
    }
    listed = {(path, name) for path, names in FOREIGN.items() for name in names}
    assert sorted(found - listed) == [], "make it a field of the kind's traits in api/traits.py"
    assert sorted(listed - found) == [], "no longer asked for: take it off the list"


class Plain: ...


class Typed:
    traits = EngineTraits(separate=True)

    def __init__(self, elsewhere):
        self.traits = EngineTraits(separate=True, elsewhere=elsewhere)


class Wrong:
    traits = {"separate": True}


def test_traits_are_read_of_classes_and_of_instances():
    assert traits_of(Plain, SamplerTraits).max_reads == 1
    assert traits_of(Plain(), EngineTraits) == EngineTraits()
    assert traits_of(Typed, EngineTraits).separate
    assert not traits_of(Typed, EngineTraits).elsewhere
    assert traits_of(Typed(True), EngineTraits).elsewhere


@pytest.mark.parametrize("component", [Wrong, Wrong(), Typed])
def test_traits_of_another_type_are_the_plugins_error(component):
    with pytest.raises(PluginError, match=r"traits of .*test_traits:\w+ are .*not SamplerTraits"):
        traits_of(component, SamplerTraits)
