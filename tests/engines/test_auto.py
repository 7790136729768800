import importlib.util
import json
import sys
import types
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from rlvr_core.api import MachineError
from rlvr_core.engines.vllm import process as vllm_process
from rlvr_core.engines.vllm.choice import choose_engine, parameter_count


def save(folder, shards, *, tied=False, index=True):
    """A model folder of these shards: lists of (name, shape)."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"tie_word_embeddings": tied}))
    names = {}
    for number, tensors in enumerate(shards):
        file = "model.safetensors" if len(shards) == 1 else f"model-{number}.safetensors"
        save_file({name: torch.zeros(shape) for name, shape in tensors}, folder / file)
        names |= {name: file for name, _ in tensors}
    if len(shards) > 1 and index:
        text = json.dumps({"weight_map": names})
        (folder / "model.safetensors.index.json").write_text(text)
    return str(folder)


def test_counts_every_shard_and_nothing_else_in_the_folder(tmp_path):
    path = save(tmp_path, [[("a", (3, 4))], [("b", (5,)), ("c", (2, 2, 2))]])
    save_file({"a": torch.zeros(3, 4), "b": torch.zeros(5)}, tmp_path / "consolidated.safetensors")
    assert parameter_count(path) == 12 + 5 + 8


@pytest.mark.parametrize(("tied", "expected"), [(True, 12), (False, 24)])
def test_a_tied_head_counts_once_even_when_written_out(tmp_path, tied, expected):
    tensors = [("model.embed_tokens.weight", (3, 4)), ("lm_head.weight", (3, 4))]
    assert parameter_count(save(tmp_path, [tensors], tied=tied)) == expected


def test_agrees_with_transformers(tmp_path):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=50, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, head_dim=16, tie_word_embeddings=True,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    model.save_pretrained(tmp_path, max_shard_size="10KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    assert parameter_count(str(tmp_path)) == model.num_parameters()


@pytest.mark.parametrize("damage", ["no weights", "not safetensors", "shard missing", "no config"])
def test_a_damaged_folder_is_named(tmp_path, damage):
    path = save(tmp_path / "m", [[("a", (3, 4))], [("b", (5,))]])
    if damage == "no weights":
        (tmp_path / "m" / "model.safetensors.index.json").unlink()
    elif damage == "not safetensors":
        (tmp_path / "m" / "model-0.safetensors").write_bytes(b"\xff" * 64)
    elif damage == "shard missing":
        (tmp_path / "m" / "model-1.safetensors").unlink()
    else:
        (tmp_path / "m" / "config.json").unlink()
    with pytest.raises(MachineError, match=r"size of '.*m' cannot be determined"):
        parameter_count(path)


def test_a_hub_model_that_is_cached_is_counted_without_the_network(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    repository = tmp_path / "models--org--name"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("abc")
    (repository / "snapshots").mkdir()
    save(repository / "snapshots" / "abc", [[("a", (7, 3))]])
    assert parameter_count("org/name") == 21
    with pytest.raises(MachineError, match="org/other"):
        parameter_count("org/other")


def test_a_hub_that_cannot_be_reached_is_said_so(tmp_path, monkeypatch):
    """The hub's client raises what its HTTP library raises, which is no OSError."""

    class ConnectError(Exception):
        pass

    def get_safetensors_metadata(model_id):
        raise ConnectError("name not known")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.get_safetensors_metadata", get_safetensors_metadata)
    with pytest.raises(MachineError, match="ConnectError: name not known") as caught:
        parameter_count("models/tiny")
    [complaint] = caught.value.complaints
    assert str(Path("models/tiny").absolute()) in complaint.remedy[0]


# -- the choice ----------------------------------------------------------------------------------


@pytest.fixture
def vllm_state(monkeypatch):
    """Make vLLM absent, broken by an exception, or fine, as far as anybody can tell."""
    real = importlib.util.find_spec

    def state(error):
        spec = None if error == "absent" else types.SimpleNamespace(name="vllm")
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda name, *a: spec if name == "vllm" else real(name, *a)
        )

        def importing(name):
            if isinstance(error, Exception):
                raise error
            return types.ModuleType(name)

        monkeypatch.setattr(vllm_process.importlib, "import_module", importing)

    return state


def test_a_tiny_model_does_without_vllm_and_without_looking_for_it(vllm_state):
    vllm_state(AssertionError("vLLM was imported"))
    assert choose_engine("tiny", n_parameters=800_000) == (
        "core/transformers",
        "tiny is tiny (800k parameters)",
    )


def test_takes_vllm_where_it_imports(vllm_state):
    vllm_state(None)
    name, why = choose_engine("Qwen/Qwen3-1.7B-Base", n_parameters=1_720_000_000)
    assert name == "core/vllm"
    assert why == "vLLM is installed and Qwen/Qwen3-1.7B-Base has 1.72B parameters"


def test_takes_transformers_without_vllm_and_says_how_to_get_it(vllm_state):
    vllm_state("absent")
    name, why = choose_engine("m", n_parameters=10**9)
    assert name == "core/transformers"
    assert "not installed" in why
    assert "rlvr docs installation" in why


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (RuntimeError("operator torchvision::nms does not exist"), "uninstall torchvision"),
        (ModuleNotFoundError("No module named 'msgspec'", name="msgspec"), "holds 'msgspec'"),
        (ImportError("libcudart.so.13: cannot open shared object file"), "must match torch"),
        (ModuleNotFoundError("No module named 'vllm._C'", name="vllm._C"), "must match torch"),
    ],
)
def test_a_broken_vllm_is_explained_and_nothing_is_repaired(vllm_state, error, remedy):
    vllm_state(error)
    name, why = choose_engine("m", n_parameters=10**9)
    assert name == "core/transformers"
    assert str(error) in why
    with pytest.raises(MachineError, match="cannot be imported") as caught:
        vllm_process.import_vllm()
    assert remedy in str(caught.value)
    assert caught.value.exit_code == 4


def test_an_absent_vllm_stops_a_run_that_asks_for_it(vllm_state, tmp_path):
    from rlvr_core.api import EngineContext
    from rlvr_core.engines.vllm.engine import VllmEngine

    vllm_state("absent")
    engine = VllmEngine(VllmEngine.Config())
    with pytest.raises(MachineError, match="not installed") as caught:
        engine.start(EngineContext(str(tmp_path), None, None, torch.float32, 64, 0))
    assert "pip install 'rlvr-core[vllm]'" in str(caught.value)


def test_importing_the_engine_module_imports_no_vllm():
    import subprocess

    code = (
        "import rlvr_core.engines.vllm.engine, rlvr_core.engines.vllm.choice, sys; "
        "print('vllm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
