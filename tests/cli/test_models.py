"""``rlvr models``: what is wrong with a model's files, and what is known of the model."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rlvr_core.api import ConfigError, MachineError, PluginError
from rlvr_core.api.services import load_host, model_identity, wilson
from rlvr_core.builtin.modelcheck import baselines
from rlvr_core.builtin.modelcheck.examination import check
from rlvr_core.testing.fork_server import run_rlvr
from rlvr_core.testing.lab import install_plugin
from rlvr_core.testing.random_model import save_random_model

ROOT = Path(__file__).parents[2]
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
    data = {one.id: one.data for one in found.report.findings}
    assert data["model/architecture"] == {"class": "Qwen3ForCausalLM", "parameters": PARAMETERS}
    assert data["model/memory"] == {
        "bfloat16": 2 * PARAMETERS,
        "float32": 4 * PARAMETERS,
        "training": 16 * PARAMETERS,
    }
    assert data["weights/files"] == {"files": 1, "bytes": 4 * PARAMETERS, "dtypes": ["float32"]}
    assert data["tokenizer/vocabulary"] == {"tokens": 258, "rows": 258}
    assert data["model/context"] == {"positions": 32768}
    assert found.identity["model"] == model_identity(str(folder))
    assert found.identity["tokenizer"]["tokens"] == 258


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float64"])
def test_other_types_are_whole_too(folder, dtype):
    kind = getattr(torch, dtype)
    edit_weights(folder, lambda one: one.update({k: v.to(kind) for k, v in one.items()}))
    verdict, found = findings(folder)
    assert verdict == "healthy"
    assert found["weights/dtype"] == (
        "note", f"config.json says float32, the files have {dtype}; runs take model.dtype",
    )  # fmt: skip


def test_shards_are_whole(folder):
    out, shards = in_shards(folder)
    verdict, found = findings(out)
    assert verdict == "healthy"
    assert f"in {len(shards)} files" in found["weights/files"][1]


def test_a_missing_shard_is_named(folder):
    out, shards = in_shards(folder)
    shards[1].unlink()
    found = broken(out, "weights/files", f"1 of {len(shards)} shards are missing", shards[1].name)
    assert found["weights/values"][0] == found["tokenizer/vocabulary"][0] == "skip"
    assert found["tokenizer/template"][0] == "note"  # what does not rest on weights is examined


def test_shards_that_the_index_does_not_fit_are_named(folder):
    out, shards = in_shards(folder)
    shutil.copy(shards[0], shards[1])
    broken(out, "weights/files", "are not in the shard that model.safetensors.index.json names")


def test_shards_without_an_index_are_no_weights(folder):
    out, _ = in_shards(folder)
    (out / "model.safetensors.index.json").unlink()
    broken(out, "weights/files", "there are no weights", "model-00001", "which is not loaded")


def test_weights_beside_those_that_are_loaded_are_named(folder):
    shutil.copy(folder / "model.safetensors", folder / "model-00001-of-00002.safetensors")
    verdict, found = findings(folder)
    assert (verdict, found["weights/unused"][0]) == ("doubtful", "warn")


@pytest.mark.parametrize("kept", [0, 4, 100, 5_000, -1])
def test_a_truncated_file_is_seen(folder, kept):
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    broken(folder, "weights/files", "model.safetensors is cut off")


def test_bytes_behind_the_tensors_are_seen(folder):
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"rest")
    broken(folder, "weights/files", "4 bytes too many")


def test_a_header_that_lies_is_seen(folder):
    file = folder / "model.safetensors"
    content = file.read_bytes()
    assert content.count(b'"shape":[258,32]') == 1
    file.write_bytes(content.replace(b'"shape":[258,32]', b'"shape":[259,32]'))
    broken(folder, "weights/files", "no readable header", "of shape [259, 32]")


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
    assert (verdict, found["weights/values"][0]) == ("healthy", "skip")


def test_a_matrix_of_zeros_is_doubted(folder):
    name = "model.layers.0.self_attn.q_proj.weight"
    edit_weights(folder, lambda one: one[name].zero_())
    verdict, found = findings(folder)
    assert verdict == "doubtful"
    assert found["weights/zero"] == ("warn", f"1 matrices are zero throughout: {name}")


def head_of(tensors, *, same):
    embedding = tensors["model.embed_tokens.weight"]
    tensors["lm_head.weight"] = embedding.clone() if same else embedding + 1


def test_a_tie_that_the_files_do_not_have(folder):
    edit_weights(folder, lambda one: head_of(one, same=False))
    broken(folder, "weights/tied", "lm_head.weight differs from model.embed_tokens.weight")


def test_a_tie_that_the_config_does_not_have(folder):
    edit(folder / "config.json", tie_word_embeddings=False)
    broken(folder, "weights/names", "lack 1 weights: lm_head.weight", "they would be random")
    edit_weights(folder, lambda one: head_of(one, same=True))
    verdict, found = findings(folder)
    assert (verdict, found["weights/tied"][0]) == ("doubtful", "warn")
    edit_weights(folder, lambda one: head_of(one, same=False))
    assert findings(folder)[0] == "healthy"


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
    assert found["adapter/matrices"] == ("ok", "2 pairs of matrices")
    assert "config" not in found
    shutil.rmtree(folder)
    broken(out, "adapter/base", "is not on this machine")
    file = out / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    cut = broken(out, "adapter", "adapter_model.safetensors is cut off")
    assert cut["adapter/kind"][0] == "warn"


def test_what_is_no_model_at_all(folder, tmp_path):
    with pytest.raises(ConfigError, match="is a file, not a model's folder"):
        check(str(folder / "model.safetensors"))
    with pytest.raises(MachineError, match=r"(?s)does not exist"):
        check(str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(MachineError, match=r"has no config\.json"):
        check(str(tmp_path / "empty"))
    for text in ("", "a\0b"):
        with pytest.raises(ConfigError):
            check(text)


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
    assert {"id", "verdict", "found", "remedy"} <= found["checks"][0].keys()
    assert rlvr("models", "check", str(folder / "config.json")).returncode == 2
    assert rlvr("models", "check", str(folder / "nowhere")).returncode == 4


def test_a_hub_id_that_is_not_here_still_has_its_figures(tmp_path):
    args = ("models", "check", "Qwen/Qwen3-1.7B-Base", "--json")
    done = rlvr(*args, HF_HOME=str(tmp_path), HF_HUB_CACHE=str(tmp_path))
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found["folder"] is None
    assert found["checks"][0]["remedy"] == "fetch it: hf download Qwen/Qwen3-1.7B-Base"
    assert {one["measured_by"] for one in found["baselines"]} == {"reference"}
    gsm8k = [one["value"] for one in found["baselines"]
             if one["task"] == "GSM8K test" and not one["after"]]  # fmt: skip
    assert gsm8k == [0.1433, 0.6277]


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
    text = {one["id"]: one["found"] for one in by_id["checks"]}["tokenizer/template"]
    assert text == "no chat template"
    place = str(home / "snapshots" / commit)
    by_folder = json.loads(rlvr("models", "check", place, "--json", **cache).stdout)
    for found in (by_id, by_folder):
        assert {one["same"] for one in found["baselines"]} == {"id"}


def test_a_cache_that_cannot_be_written(folder, tmp_path):
    (tmp_path / "file").write_text("")
    under = str(tmp_path / "file" / "cache")
    env = {"RLVR_CACHE": under, "HF_HOME": under, "XDG_CACHE_HOME": under, "HF_HUB_CACHE": under}
    done = rlvr("models", "check", str(folder), **env)
    assert (done.returncode, "verdict: healthy" in done.stdout) == (0, True), done.stderr
    tiny = rlvr("models", "check", "tiny:math/arithmetic", **env)
    assert tiny.returncode == 4
    assert "Traceback" not in tiny.stderr


def test_names_beyond_ascii_in_another_locale(folder):
    named = folder.rename(folder.with_name("Größe-模型"))
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "PYTHONIO"))}

    def run(**more):
        return subprocess.run(
            [sys.executable, "-m", "rlvr_core.cli.main", "models", "check", str(named)],
            env={**env, **more, "HF_HUB_OFFLINE": "1"},
            capture_output=True,
            timeout=120,
            check=False,
        )

    done = run(LC_ALL="C")
    assert done.returncode == 0, done.stderr.decode()
    assert b"verdict: healthy" in done.stdout
    done = run(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    assert done.returncode == 1  # the library of tokenizers cannot open such a name there
    assert b"PYTHONUTF8=1" in done.stdout
    assert b"Traceback" not in done.stderr


def test_help_and_the_list_of_figures_load_no_model_library():
    script = (
        "import sys\nfrom rlvr_core.cli.main import main\n"
        "assert main(sys.argv[1:]) == 0\n"
        "print({'torch', 'transformers'} & set(sys.modules), file=sys.stderr)"
    )
    for args in (["check", "--help"], ["baselines", "--help"], ["baselines", "--json"]):
        done = subprocess.run(
            [sys.executable, "-c", script, "models", *args],
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == "set()\n"


# -- the registry ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def registry():
    return baselines.registered(load_host({"RLVR_PLUGINS": ""}))


def test_figures_of_ours_stand_where_they_say(registry):
    """Each value is written in the page that its source names."""
    ours = [one for one in registry if one.measured_by == "rlvr"]
    assert len(ours) > 20
    pages: dict[str, str] = {}
    for one in ours:
        page = one.source.partition(",")[0]
        text = pages.setdefault(page, (ROOT / page).read_text())
        digits = rf"(?<!\d)0?\.0*{str(one.value)[2:]}0*(?!\d)"
        assert re.search(digits, text), (one.task, one.value)
        assert one.system == ""


def test_figures_of_others_are_marked(registry):
    theirs = [one for one in registry if one.measured_by == "reference"]
    assert {one.system for one in theirs} == {"reference system A", "reference system B"}
    assert not any(one.model.startswith("tiny:") for one in theirs)
    shown = rlvr("models", "baselines", "Qwen/Qwen3-1.7B").stdout
    assert "reference system A (theirs)" in shown
    assert "0.331" in shown


def test_intervals_come_from_counts(registry):
    (one,) = (b for b in registry if b.correct == 828)
    low, high = wilson(828, 1319)
    assert one.interval == (round(low, 4), round(high, 4)) == (0.6013, 0.6534)
    assert next(b for b in registry if b.task == "MMLU").interval is None


def test_how_a_model_is_recognised(registry):
    def found(names, digests=()):
        return {how for _, how in baselines.known(registry, names, digests)}

    names = baselines.names_of
    assert found(names("Qwen/Qwen3-1.7B-Base")) == {"id"}
    assert found(names("/data/models/qwen3-1.7b-base/")) == {"name"}
    assert found(names("Qwen/Qwen3-8B")) == {"name"}  # reference B names no organisation
    assert found(names("Qwen/Qwen3-1.7B-Base-tuned")) == set()
    assert found(names("math/arithmetic")) == set()
    assert found(names("tiny:math/arithmetic")) == {"id"}
    hashed = registry[0].model_copy(update={"sha256": "ab", "model": "x/y"})
    known = baselines.known
    assert known([hashed], {"z"}, ["ab"]) == [(hashed, "files")]
    assert known([hashed], {"x/y"}, ["cd"]) == []  # other files of the same name


BLOCK = """
[[measured]]
model = "me/mine"
task = "t"
metric = "accuracy"
date = 2026-01-02
measured_by = "rlvr"
source = "here"
results = [{value = 0.5, n = 10, correct = 5}]
"""
PLUGIN = """
from rlvr_core.api import hookimpl

@hookimpl
def register_services(registrar):
    registrar.add("baselines", "mine.figures:text", summary="Figures.")
"""


def test_a_plugin_adds_figures(tmp_path):
    files = {"mine/plugin.py": PLUGIN, "mine/__init__.py": "",
             "mine/figures.py": f"def text():\n    return '''{BLOCK}'''\n"}  # fmt: skip
    site = install_plugin(tmp_path / "site", "mine", files)
    env = {"PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])}
    (found,) = json.loads(rlvr("models", "baselines", "me/mine", "--json", **env).stdout)
    assert (found["value"], found["interval"]) == (0.5, [0.2366, 0.7634])
    (site / "mine/figures.py").write_text("def text():\n    return 'x ='\n")
    done = rlvr("models", "baselines", **env)
    assert done.returncode == 3
    assert "the baselines of plugin mine cannot be read" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"rlvr"', '"nobody"', "measured_by"),
        ('"rlvr"', '"reference"', "a reference has a system"),
        ("correct = 5", "correct = 7", "7 of 10 is not 0.5"),
        ("correct = 5", "korrect = 5", "korrect"),
        ("2026-01-02", '"soon"', "date"),
        ("results", "rsults", "KeyError"),
    ],
)
def test_figures_that_contradict_themselves_are_refused(old, new, words):
    assert [one.model for one in baselines.read(BLOCK, "us")] == ["me/mine"]
    with pytest.raises(PluginError, match=words):
        list(baselines.read(BLOCK.replace(old, new), "us"))


def test_every_key_of_the_registry_is_explained():
    page = (ROOT / "docs/models.md").read_text()
    for name in baselines.Baseline.model_fields:
        assert f"`{name}`" in page
    assert tomllib.loads(baselines.core())
