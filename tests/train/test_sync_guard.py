"""Guard sync, with a real engine that shares or copies the trainer's model."""

import contextlib
import copy
from types import SimpleNamespace

import pytest
import torch

from rlvr_core.api import EngineContext, RunError, RunStarted
from rlvr_core.builtin.invariants.expected import expected
from rlvr_core.builtin.invariants.sync import Sync
from rlvr_core.builtin.lora import lora
from rlvr_core.builtin.lora.adapter import matrices
from rlvr_core.config.model import LoraSection
from rlvr_core.engines.sync import ModuleSource, weight_checksums
from rlvr_core.engines.transformers import TransformersEngine
from rlvr_core.step.model import Precision
from rlvr_core.testing.random_model import save_random_model

LORA = LoraSection(rank=4, alpha=6)
PROMPTS = [tuple(range(20, 32)), tuple(range(40, 52)), tuple(range(60, 65))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("model")
    save_random_model(place, seed=0)
    return place


class Copying(TransformersEngine):
    """An engine with weights of its own, which a sync brings up to date."""

    def start(self, context):
        super().start(context)
        self._model = copy.deepcopy(context.model)

    def load_weights(self, version, source):
        self._version = version
        self._model.load_state_dict(source.module.state_dict())


class Harness:
    """A trainer's model, an engine, and the guard between them."""

    def __init__(self, folder, dtype, *, adapter=False, kind=Copying):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self.model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        section = LORA if adapter else None
        if adapter:
            lora.attach(self.model, LORA, seed=1, compute=dtype, path="x", revision=None)
        trainer = SimpleNamespace(model=self.model, precision=Precision(dtype))
        tokenizer = AutoTokenizer.from_pretrained(folder)
        self.engine = kind(kind.Config())
        self.engine.start(EngineContext(str(folder), self.model, tokenizer, dtype, 64, 1))
        config = SimpleNamespace(model=SimpleNamespace(lora=section))
        self.guard = Sync(config, self.engine, trainer)
        self.guard.run_started(RunStarted(folder, {}, 0))
        self.version = 0

    def step(self, size=1e-3, load=True):
        """A step: its groups, an update, and the sync."""
        members = [
            (SimpleNamespace(completion=SimpleNamespace(prompt_ids=ids, token_versions=())),)
            for ids in PROMPTS
        ]
        groups = [SimpleNamespace(version=self.version, members=one) for one in members]
        self.guard.on_groups(SimpleNamespace(version=self.version, groups=groups))
        draw = torch.Generator().manual_seed(self.version)
        with torch.no_grad():
            for parameter in self.model.parameters():
                if parameter.requires_grad:
                    parameter.add_(size * torch.randn(parameter.shape, generator=draw))
        self.version += 1
        if load:
            self.engine.load_weights(self.version, ModuleSource(self.model))
        self.guard.weights_loaded(self.version - 1, self.version, ModuleSource(self.model))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("adapter", [False, True])
@pytest.mark.parametrize("kind", [Copying, TransformersEngine])
def test_a_healthy_engine_is_left_alone(folder, dtype, adapter, kind):
    run = Harness(folder, dtype, adapter=adapter, kind=kind)
    for _ in range(5):
        run.step(0.02)
    assert run.guard.end(None) == {"sync/read_back": 1.0}


def test_the_smallest_update_that_does_not_arrive_is_found(folder):
    run = Harness(folder, torch.bfloat16)
    run.step()
    with pytest.raises(RunError, match="the engine kept its old weights"):
        run.step(1e-7, load=False)


def rounded(model):
    rotation = model.model.rotary_emb
    rotation.inv_freq.copy_(rotation.inv_freq.bfloat16())


def half(model):
    model.model.rotary_emb.inv_freq = model.model.rotary_emb.inv_freq.bfloat16()


def one_scale(model):
    model.model.layers[1].self_attn.scaling *= 1.01


def one_epsilon(model):
    model.model.norm.variance_epsilon = 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("change", "name"),
    [
        (rounded, "inv_freq"),
        (half, "inv_freq"),
        (one_scale, "Attention.scaling"),
        (one_epsilon, "RMSNorm.variance_epsilon"),
    ],
)
def test_what_an_engine_has_beside_weights_is_compared(folder, dtype, change, name):
    """Before the first sync, and after each: here it comes with the second one."""
    run = Harness(folder, dtype)
    run.step()
    change(run.engine._model)
    with pytest.raises(RunError, match=rf"guard sync: .*1 of what .*{name}"):
        run.step()

    class FromTheStart(Copying):
        def start(self, context):
            super().start(context)
            change(self._model)

    with pytest.raises(RunError, match=name):
        Harness(folder, dtype, kind=FromTheStart)


def test_buffers_may_be_computed_on_another_device(folder):
    """A unit in the last place is rounding."""
    run = Harness(folder, torch.bfloat16)
    rotation = run.engine._model.model.rotary_emb
    rotation.inv_freq.copy_(torch.nextafter(rotation.inv_freq, torch.tensor(9.0)))
    run.step()


def scaled(factor, layers):
    """An engine that generates with another scale of its adapters."""

    class Scaled(TransformersEngine):
        @contextlib.contextmanager
        def _inference(self):
            found = [m for m in self._model.modules() if hasattr(m, "lora_A")][layers]
            before = [dict(layer.scaling) for layer in found]
            for layer in found:
                layer.scaling["default"] *= factor
            try:
                with super()._inference():
                    yield
            finally:
                for layer, scale in zip(found, before, strict=True):
                    layer.scaling.update(scale)

    return Scaled


@pytest.mark.parametrize(
    ("factor", "layers"),
    [(1 / 1.5, slice(None)), (1.5, slice(None)), (0.0, slice(None)), (0.0, slice(3, 4))],
    ids=["without alpha / rank", "twice", "off", "off in one layer"],
)
def test_an_adapter_with_another_scale_is_found_in_half_precision(folder, factor, layers):
    run = Harness(folder, torch.bfloat16, adapter=True, kind=scaled(factor, layers))
    with pytest.raises(RunError, match=r"guard sync: .*other weights") as caught:
        run.step()
    assert "not multiplied by its alpha / rank" in str(caught.value)


class OldPrompts(TransformersEngine):
    """An engine whose keys and values of prompts are those of the weights it began with."""

    def _decoder(self):
        decoder = super()._decoder()
        if not hasattr(self, "old"):
            self.old = copy.deepcopy(self._model)
        if not hasattr(decoder, "_model"):
            return decoder  # the lean path of float32
        prefill = decoder.prefill

        def stale(*arguments):
            new, decoder._model = decoder._model, self.old
            logits = prefill(*arguments)
            decoder._model = new
            return logits

        decoder.prefill = stale
        return decoder


def test_prompts_cached_under_old_weights_are_found_in_half_precision(folder):
    run = Harness(folder, torch.bfloat16, kind=OldPrompts)
    with pytest.raises(RunError, match="nats on the token behind a prompt") as caught:
        run.step(0.02)
    assert "cache of older weights" in str(caught.value)


def test_an_engine_that_forgets_its_version_is_found(folder):
    class Forgets(TransformersEngine):
        def load_weights(self, version, source):
            super().load_weights(0, source)

    run = Harness(folder, torch.float32, kind=Forgets)
    with pytest.raises(RunError, match=r"to version 1 the engine labels .* 0"):
        run.step()


def test_an_engine_that_forgets_a_request_is_named(folder):
    class Forgets(TransformersEngine):
        def drain(self, timeout):
            self._queue.pop()
            super().drain(timeout)

    run = Harness(folder, torch.float32, kind=Forgets)
    with pytest.raises(RunError, match=r"did not answer 1 of \d requests") as caught:
        run.step()
    assert "the engine forgets requests" in str(caught.value)


def test_numbers_in_other_places_are_named_so(folder):
    class Rolls(Copying):
        def load_weights(self, version, source):
            super().load_weights(version, source)
            with torch.no_grad():
                matrix = self._model.model.layers[0].self_attn.o_proj.weight
                matrix.copy_(matrix.roll(2, 0))

    run = Harness(folder, torch.bfloat16, kind=Rolls)
    with pytest.raises(RunError, match=r"1 of .*o_proj") as caught:
        run.step()
    assert "the trainer's numbers in other places" in str(caught.value)


def test_what_is_expected_of_an_adapter_is_its_formula(folder):
    run = Harness(folder, torch.float32, adapter=True)
    run.step(0.05)
    name = "model.layers.0.mlp.up_proj"
    layer = run.model.get_submodule(name)
    a, b = (half["default"].weight.detach() for half in (layer.lora_A, layer.lora_B))
    merged = layer.base_layer.weight + 1.5 * (b @ a)
    sums = expected(run.model, "whole", None, LORA)
    assert sums[f"{name}.weight"] == weight_checksums([("x", merged)])["x"]
    beside = expected(run.model, "beside", torch.bfloat16, LORA)
    half = b.bfloat16() * 1.5
    assert beside[f"{name}.lora_B.weight"] == weight_checksums([("x", half)])["x"]
    assert len([one for one in beside if ".lora_A." in one]) * 2 == len(matrices(run.model))


def test_a_checksum_is_of_bits_and_places():
    t = torch.tensor([[1.0, -0.0], [2.0, 0.5]])
    bits = [[0x3F800000, 0], [0x40000000, 0x3F000000]]  # of float32, and -0.0 as 0.0
    total = sum(map(sum, bits))
    rows = 1 * sum(bits[0]) + 2 * sum(bits[1])
    columns = 1 * (bits[0][0] + bits[1][0]) + 2 * (bits[0][1] + bits[1][1])
    wanted = (total << 64) + (rows - 3**33 * columns) % 2**64
    assert weight_checksums([("t", t)]) == {"t": wanted}
    others = {"turned": t.T, "rows": t.flip(0), "columns": t.flip(1)}
    sums = weight_checksums(others.items())
    assert len({wanted, *sums.values()}) == 4
    assert {one >> 64 for one in sums.values()} == {total}
    padded = torch.nn.functional.pad(t, (0, 3, 0, 2))
    assert weight_checksums([("t", padded)])["t"] == wanted
    large = torch.randn(3000, 130)  # several parts
    halves = weight_checksums([("a", large[:1100]), ("b", large[1100:])])
    assert weight_checksums([("t", large)])["t"] >> 64 == sum(one >> 64 for one in halves.values())
