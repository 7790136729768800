"""``rlvr models``: what is wrong with a model's files, and what is known of the model."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlvr_core.api import ConfigError, MachineError
from rlvr_core.record.provenance.model import model_identity
from rlvr_core.testing.fork_server import run_rlvr
from rlvr_core.testing.random_model import save_random_model
from rlvr_doctor.modelcheck.examination import check

PARAMETERS = 26_912  # 258*32 + 2*(32*32 + 2*32*16 + 32*32 + 3*32*64 + 2*32 + 2*16) + 32


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return save_random_model(tmp_path_factory.mktemp("made") / "whole")


@pytest.fixture
def folder(made, tmp_path):
    """A copy of a whole model, to break."""
    return Path(shutil.copytree(made, tmp_path / "model"))


def findings(model, **options):
    report = check(str(model), **options).report
    return report.verdict, {one.id: (one.level, one.text) for one in report.findings}


def broken(model, id_, *words):
    verdict, found = findings(model)
    assert verdict == "broken", found
    level, text = found[id_]
    assert level == "fail", text
    for word in words:
        assert word in text
    remedies = [one.remedy for one in check(str(model)).report.level("fail", "warn")]
    assert all(remedies)
    return found


def edit(file, **changes):
    found = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({k: v for k, v in found.items() if v is not ...}))


def edit_weights(folder, change):
    file = folder / "model.safetensors"
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, metadata={"format": "pt"})


def in_shards(folder):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    out = folder.with_name("sharded")
    AutoModelForCausalLM.from_pretrained(folder).save_pretrained(out, max_shard_size="40KB")
    AutoTokenizer.from_pretrained(folder).save_pretrained(out)
    shards = sorted(out.glob("model-*.safetensors"))
    assert len(shards) > 2
    return out, shards


def test_a_whole_model_is_healthy(folder):
    found = check(str(folder))
    assert found.report.verdict == "healthy"
    texts = {one.id: one.text for one in found.report.findings}
    assert texts["model/architecture"].startswith(f"Qwen3ForCausalLM, {PARAMETERS:,} parameters")
    assert texts["weights/files"] == f"24 tensors in 1 files, {4 * PARAMETERS:,} bytes, float32"
    assert texts["tokenizer/vocabulary"] == "258 tokens, the embedding has 258 rows"
    assert texts["model/context"].startswith("32,768 tokens")
    assert found.identity["model"] == model_identity(str(folder))
    assert found.identity["tokenizer"]["tokens"] == 258


def test_shards_are_whole(folder):
    out, shards = in_shards(folder)
    verdict, found = findings(out)
    assert verdict == "healthy"
    assert f"in {len(shards)} files" in found["weights/files"][1]


def test_a_missing_shard_is_named(folder):
    out, shards = in_shards(folder)
    shards[1].unlink()
    found = broken(out, "weights/files", f"1 of {len(shards)} shards are missing", shards[1].name)
    assert found["weights/values"][0] == found["tokenizer/vocabulary"][0] == "note"
    assert found["tokenizer/template"][0] == "note"  # what does not rest on weights is examined


def test_shards_that_the_index_does_not_fit_are_named(folder):
    out, shards = in_shards(folder)
    shutil.copy(shards[0], shards[1])
    broken(out, "weights/files", "are not in the shard that model.safetensors.index.json names")


def test_shards_without_an_index_are_no_weights(folder):
    out, _ = in_shards(folder)
    (out / "model.safetensors.index.json").unlink()
    broken(out, "weights/files", "there are no weights", "model.safetensors.index.json")


def test_weights_beside_those_that_are_loaded_are_named(folder):
    shutil.copy(folder / "model.safetensors", folder / "model-00001-of-00002.safetensors")
    verdict, found = findings(folder)
    assert (verdict, found["weights/unused"][0]) == ("healthy", "note")


@pytest.mark.parametrize("kept", [0, 4, 100, 5_000, -1])
def test_a_truncated_file_is_seen(folder, kept):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    broken(folder, "weights/files", "model.safetensors is cut off")


def test_bytes_behind_the_tensors_are_seen(folder):
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"rest")
    broken(folder, "weights/files", "is cut off or damaged")


def test_a_header_that_lies_is_seen(folder):
    file = folder / "model.safetensors"
    content = file.read_bytes()
    assert content.count(b'"shape":[258,32]') == 1
    file.write_bytes(content.replace(b'"shape":[258,32]', b'"shape":[259,32]'))
    broken(folder, "weights/files", "is cut off or damaged")


def test_a_pointer_of_git_lfs_is_named(folder):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n"
    (folder / "model.safetensors").write_text(pointer)
    broken(folder, "weights/files", "pointer of Git LFS")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_numbers_that_are_none_are_counted(folder, dtype):
    name = "model.layers.1.mlp.up_proj.weight"

    def spoil(tensors):
        one = tensors[name].to(dtype)
        one[0, :3], one[5, 1], one[6, 2] = torch.nan, torch.inf, -torch.inf
        tensors[name] = one

    edit_weights(folder, spoil)
    broken(folder, "weights/values", f"1 tensors are not finite: {name} (3 NaN, 2 infinite)")
    verdict, found = findings(folder, values=False)
    assert (verdict, found["weights/values"][0]) == ("healthy", "note")


def test_a_matrix_of_zeros_is_doubted(folder):
    name = "model.layers.0.self_attn.q_proj.weight"
    edit_weights(folder, lambda one: one[name].zero_())
    verdict, found = findings(folder)
    assert verdict == "doubtful"
    assert found["weights/constant"] == ("warn", f"1 matrices are one number throughout: {name}")


def head_of(tensors, *, same):
    embedding = tensors["model.embed_tokens.weight"]
    tensors["lm_head.weight"] = embedding.clone() if same else embedding + 1


def test_a_tied_head_that_is_stored_twice_is_healthy(folder):
    edit_weights(folder, lambda one: head_of(one, same=True))
    assert findings(folder)[0] == "healthy"


def test_weights_of_another_shape_or_architecture(folder):
    edit(folder / "config.json", num_hidden_layers=1, layer_types=...)
    verdict, found = findings(folder)
    assert verdict == "doubtful"
    assert "11 tensors are no part of Qwen3ForCausalLM" in found["weights/more"][1]
    edit(folder / "config.json", num_hidden_layers=3)
    broken(folder, "weights/names", "lack 11 weights: model.layers.2.")
    edit(folder / "config.json", num_hidden_layers=2, intermediate_size=48)
    broken(folder, "weights/names", "have 6 of another shape")


def test_another_models_tokenizer(folder, tmp_path):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<one>", "<two>"])
    tokenizer.save_pretrained(folder)
    text = "260 tokens, the embedding has 258 rows"
    broken(folder, "tokenizer/vocabulary", text, "'<one>' is 258")
    larger = save_random_model(tmp_path / "larger", vocab_size=400)
    verdict, found = findings(larger)
    assert verdict == "doubtful"
    assert "36% of them have no token" in found["tokenizer/vocabulary"][1]


def test_special_tokens(folder):
    edit(folder / "generation_config.json", eos_token_id=[5, 7])
    verdict, found = findings(folder)
    assert verdict == "doubtful"
    assert "is not in generation_config.json" in found["tokenizer/special"][1]
    edit(folder / "generation_config.json", eos_token_id=[5, 256])
    assert findings(folder)[0] == "healthy"
    edit(folder / "generation_config.json", eos_token_id=[300])
    broken(folder, "tokenizer/special", "[300] have no row")
    edit(folder / "generation_config.json", eos_token_id=...)
    edit(folder / "config.json", eos_token_id=None)
    edit(folder / "tokenizer_config.json", eos_token=None)
    broken(folder, "tokenizer/special", "no token ends a text")


TEMPLATE = "{% for m in messages %}<s>{{ m.role }}: {{ m.content }}<end>{% endfor %}"


def test_the_template_of_a_base_model_is_told_and_is_no_fault(folder):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<pad>"]})
    tokenizer.chat_template = TEMPLATE.replace("<end>", "<pad>")
    tokenizer.save_pretrained(folder)
    verdict, found = findings(folder)
    assert verdict == "healthy"
    assert found["tokenizer/template"][0] == "note"
    assert "a base model that carries its family's template" in found["tokenizer/template"][1]
    tokenizer.chat_template = TEMPLATE.replace("<end>", "<eos>")
    tokenizer.save_pretrained(folder)
    assert "rendered as the chat template" in findings(folder)[1]["tokenizer/template"][1]
    named = folder.rename(folder.with_name("Small-Base"))
    assert "base model by its name" in findings(named)[1]["tokenizer/template"][1]


@pytest.mark.parametrize(
    ("template", "words"),
    [("{% for %}", "cannot be rendered"), ("{{ raise_exception('no') }}", "cannot be rendered"),
     ("Hello", "leaves out what the user says")],
)  # fmt: skip
def test_a_template_that_does_not_work(folder, template, words):
    (folder / "chat_template.jinja").write_text(template)
    broken(folder, "tokenizer/template", words)


def test_a_chat_model_without_a_template_is_doubted(folder):
    named = folder.rename(folder.with_name("Small-1B-Instruct"))
    verdict, found = findings(named)
    assert (verdict, found["tokenizer/template"][0]) == ("doubtful", "warn")


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"model_type": "no-such-kind"}', "\xff"])
def test_a_config_that_cannot_be_read(folder, content):
    (folder / "config.json").write_bytes(content.encode("latin-1"))
    broken(folder, "config", "config.json")


@pytest.mark.parametrize("content", ["", '{"model": 3}', None])
def test_a_tokenizer_that_cannot_be_read(folder, content):
    file = folder / "tokenizer.json"
    file.unlink() if content is None else file.write_text(content)
    found = broken(folder, "tokenizer/vocabulary", "the tokenizer cannot be loaded")
    assert found["weights/names"][0] == "ok"


def test_code_that_comes_with_a_model_does_not_run(folder, tmp_path):
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass C: pass\n")
    edit(folder / "config.json", model_type="own-kind", auto_map={"AutoConfig": "own.C"})
    broken(folder, "config", "config.json")
    (failed,) = (one for one in check(str(folder)).report.level("fail") if one.id == "config")
    assert "--trust-remote-code" in failed.remedy
    assert not (tmp_path / "ran").exists()


def test_weights_of_pytorch(folder):
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    assert findings(folder)[0] == "healthy"
    tensors["model.norm.weight"][3] = torch.nan
    torch.save(tensors, folder / "pytorch_model.bin")
    broken(folder, "weights/values", "model.norm.weight (1 NaN, 0 infinite)")


def test_code_in_a_pickle_does_not_run(folder, tmp_path):
    import pickle

    class Bad:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'ran'}",)

    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"a": Bad()}))
    broken(folder, "weights/files", "pytorch_model.bin cannot be read")
    assert not (tmp_path / "ran").exists()


def adapter_of(base, out):
    pytest.importorskip("peft")
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base)
    get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj"])).save_pretrained(out)
    return out


def test_an_adapter_is_no_model(folder, tmp_path):
    out = adapter_of(folder, tmp_path / "adapter")
    verdict, found = findings(out)
    assert verdict == "doubtful"
    level, text = found["adapter/kind"]
    assert (level, "rank 4, and no model" in text, str(folder) in text) == ("warn", True, True)
    assert "config" not in found
    file = out / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    broken(out, "weights/files", "adapter_model.safetensors is cut off")


def test_what_is_no_model_at_all(folder, tmp_path):
    with pytest.raises(ConfigError, match="is a file, not a model's folder"):
        check(str(folder / "model.safetensors"))
    with pytest.raises(MachineError, match=r"(?s)does not exist"):
        check(str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(MachineError, match=r"has no config\.json"):
        check(str(tmp_path / "empty"))


def rlvr(*args, **env):
    return run_rlvr(*args, cwd=Path.cwd(), env={**os.environ, "HF_HUB_OFFLINE": "1", **env})


def test_the_command(folder):
    done = rlvr("models", "check", str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    assert "verdict: healthy (0 wrong, 0 doubtful)" in done.stdout
    assert f"model sha256: {model_identity(str(folder))['sha256']}" in done.stdout
    (folder / "model.safetensors").unlink()
    told = rlvr("models", "check", str(folder), "--json")
    assert told.returncode == 1
    found = json.loads(told.stdout)
    assert found["verdict"] == "broken"
    assert {"id", "level", "text", "remedy"} == found["checks"][0].keys()
    assert rlvr("models", "check", str(folder / "config.json")).returncode == 2
    assert rlvr("models", "check", str(folder / "nowhere")).returncode == 4


def test_a_hub_id_that_is_not_here(tmp_path):
    args = ("models", "check", "Qwen/Qwen3-1.7B-Base", "--json")
    done = rlvr(*args, HF_HOME=str(tmp_path), HF_HUB_CACHE=str(tmp_path))
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["folder"] is None
    assert found["checks"][0]["remedy"] == "fetch it: hf download Qwen/Qwen3-1.7B-Base"


def test_a_model_in_the_hubs_cache(folder, tmp_path):
    commit = "0123456789abcdef0123456789abcdef01234567"
    home = tmp_path / "hub" / "models--Qwen--Qwen3-1.7B-Base"
    shutil.copytree(folder, home / "snapshots" / commit)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)
    cache = {"HF_HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub")}
    by_id = json.loads(rlvr("models", "check", "Qwen/Qwen3-1.7B-Base", "--json", **cache).stdout)
    assert by_id["verdict"] == "healthy"
    assert by_id["identity"]["model"]["commit"] == commit
    text = {one["id"]: one["text"] for one in by_id["checks"]}["tokenizer/template"]
    assert text == "no chat template"


def test_a_cache_that_cannot_be_written(folder, tmp_path):
    (tmp_path / "file").write_text("")
    under = str(tmp_path / "file" / "cache")
    env = {"RLVR_CACHE": under, "HF_HOME": under, "XDG_CACHE_HOME": under, "HF_HUB_CACHE": under}
    done = rlvr("models", "check", str(folder), **env)
    assert (done.returncode, "verdict: healthy" in done.stdout) == (0, True), done.stderr
    tiny = rlvr("models", "check", "tiny:math/arithmetic", **env)
    assert tiny.returncode == 4
    assert "Traceback" not in tiny.stderr
