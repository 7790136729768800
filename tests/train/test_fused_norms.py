"""RMS norms by torch's fused kernel: which modules take it, and what it gives. R rows, N size."""

import copy
import pickle
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.olmo2.modeling_olmo2 import Olmo2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

from rlvr_core.builtin.norms.fused import Form, form_of, fuse_norms, fused_norms

CPU = torch.device("cpu")
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def norm_64(x_RN, weight_N, eps):
    """By hand, in float64."""
    x_RN = x_RN.double()
    return x_RN / (x_RN.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight_N.double()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [8, 128, 2048])
@pytest.mark.parametrize(
    ("make", "form"),
    [
        (Qwen3RMSNorm, Form(1e-6, 0.0, narrow=False)),
        (lambda size: LlamaRMSNorm(size, eps=1e-5), Form(1e-5, 0.0, narrow=False)),
        (Olmo2RMSNorm, Form(1e-6, 0.0, narrow=True)),
        (Gemma3RMSNorm, Form(1e-6, 1.0, narrow=True)),
    ],
)
def test_a_norm_is_known_by_what_it_gives(make, form, size, dtype):
    assert form_of(make(size), size, dtype, CPU) == form or (
        # in float32 the widths of input and output are the same
        dtype == torch.float32 and form_of(make(size), size, dtype, CPU).offset == form.offset
    )


class Changed(Qwen3RMSNorm):
    """A norm of the same name and the same parts, with something else in it."""

    def __init__(self, size, change):
        super().__init__(size)
        self.change = change

    def forward(self, hidden_states):
        return super().forward(self.change(hidden_states))


class WithoutSay(Qwen3RMSNorm):
    def __init__(self, size):
        super().__init__(size)
        self.variance_epsilon = 1e-5  # and 1e-6 is what it takes

    def forward(self, hidden_states):
        kept, self.variance_epsilon = self.variance_epsilon, 1e-6
        out = super().forward(hidden_states)
        self.variance_epsilon = kept
        return out


class Straight(Qwen3RMSNorm):
    """Gives the norm, and the gradient of a constant scale."""

    def forward(self, hidden_states):
        scale = super().forward(hidden_states.detach()).detach() / self.weight / hidden_states
        return self.weight * hidden_states * scale.detach()


class Scale(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), 1e-6

    def forward(self, hidden):
        return hidden * self.weight


@pytest.mark.parametrize(
    "module",
    [
        Changed(64, lambda x: x.clamp(-20, 20)),
        Changed(64, lambda x: x - x.mean(-1, keepdim=True)),
        Changed(64, lambda x: x.to(torch.bfloat16).to(x.dtype)),
        Changed(64, lambda x: x[:, :32]),
        WithoutSay(64),
        Straight(64),
        Scale(64),
    ],
    ids=["clamped", "centred", "rounded first", "broken", "another eps", "gradient", "scale"],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_another_function_or_has_another_gradient_keeps_its_own(module, dtype):
    assert form_of(module, 64, dtype, CPU) is None
    model = nn.Sequential(module)
    assert fuse_norms(model, dtype, CPU) == {}
    assert "forward" not in vars(module)


def test_a_card_for_which_torch_has_no_such_kernel_takes_the_models_own(monkeypatch):
    def missing(*_):
        raise RuntimeError("CUDA error: no kernel image is available for execution on the device")

    monkeypatch.setattr(torch.nn.functional, "rms_norm", missing)
    model = nn.Sequential(Qwen3RMSNorm(64))
    assert fuse_norms(model, torch.bfloat16, CPU) == {}
    assert torch.isfinite(model(torch.randn(2, 64))).all()


def test_modules_of_other_parts_are_not_even_tried():
    model = nn.ModuleDict(
        {"layer": nn.LayerNorm(8), "linear": nn.Linear(8, 8, bias=False), "act": nn.SiLU()}
    )
    assert fuse_norms(model, torch.float32, CPU) == {}


@torch.no_grad()
def test_one_rounding_is_nearer_to_the_truth_than_two():
    """bfloat16 of input and weight: the model's own rounds in between."""
    draw = torch.Generator().manual_seed(1)
    x_RN = torch.randn(400, 128, generator=draw).bfloat16()
    norm = Qwen3RMSNorm(128).bfloat16()
    norm.weight.data = (0.5 + torch.rand(128, generator=draw)).bfloat16()
    truth_RN = norm_64(x_RN, norm.weight, 1e-6)
    own = float((norm(x_RN).double() - truth_RN).norm())
    fuse_norms(nn.Sequential(norm), torch.bfloat16, CPU)
    out_RN = norm(x_RN)
    assert out_RN.dtype == torch.bfloat16
    fused = float((out_RN.double() - truth_RN).norm())
    assert fused < 0.85 * own
    # no rounding to bfloat16 can be nearer than the nearest
    assert fused == pytest.approx(float((truth_RN.bfloat16().double() - truth_RN).norm()), rel=1e-3)


@pytest.mark.parametrize("weight_dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_output_has_the_dtype_of_the_models_own_under_autocast_too(dtype, weight_dtype):
    x_RN = torch.randn(3, 16).to(dtype)
    for make in (Qwen3RMSNorm, Gemma3RMSNorm):
        own = make(16).to(weight_dtype)
        norm = copy.deepcopy(own)
        assert fuse_norms(nn.Sequential(norm), torch.bfloat16, CPU).total() == 1
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert norm(x_RN).dtype == own(x_RN).dtype


def test_a_weight_that_is_small_beside_1_is_not_lost():
    """1 + 0.001 is 1 in bfloat16."""
    norm = Gemma3RMSNorm(64).bfloat16()
    norm.weight.data.fill_(0.001)
    fuse_norms(nn.Sequential(norm), torch.bfloat16, CPU)
    x_RN = torch.randn(50, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    truth_RN = norm_64(x_RN, 1 + norm.weight.double(), 1e-6)
    assert torch.equal(norm(x_RN), truth_RN.bfloat16())


def test_a_copy_has_weights_of_its_own():
    """As a check of the run may copy a model, and a file may hold one."""
    model = nn.Sequential(Qwen3RMSNorm(8))
    fuse_norms(model, torch.float32, CPU)
    x_RN = torch.randn(2, 8)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with torch.no_grad():
            other[0].weight.mul_(3)
        torch.testing.assert_close(other(x_RN), 3 * model(x_RN))
    assert [name for name, _ in model.named_parameters()] == ["0.weight"]


def test_a_weight_that_takes_the_place_of_another_is_the_one_that_counts():
    """Sharded and offloaded models put others in their parameters' places."""
    norm = Qwen3RMSNorm(8)
    fuse_norms(nn.Sequential(norm), torch.float32, CPU)
    x_RN = torch.randn(2, 8)
    before = norm(x_RN)
    norm._parameters["weight"] = nn.Parameter(2 * torch.ones(8))
    torch.testing.assert_close(norm(x_RN), 2 * before)


def trainer(policy, *, compiled=None, reference=None, teachers=()):
    policy.device = CPU
    return SimpleNamespace(
        model=policy,
        compiled=compiled,
        reference=reference and SimpleNamespace(own_model=reference),
        objective=SimpleNamespace(teachers=list(teachers)),
        precision=SimpleNamespace(compute=torch.bfloat16),
    )


def test_all_models_of_a_run_are_fused_and_it_says_so():
    def norms():
        return nn.Sequential(Qwen3RMSNorm(8), Qwen3RMSNorm(8), Gemma3RMSNorm(8), Scale(8))

    made = trainer(norms(), reference=norms(), teachers=[nn.Sequential(Scale(8))])
    report = fused_norms(made)
    both = {"Qwen3RMSNorm": 2, "Gemma3RMSNorm": 1}
    assert report.name == "norms"
    assert report.record == {"policy": both, "reference": both, "teacher 1": {}}
    said = "RMS norms by torch's fused kernel: 3 of the policy, 3 of the reference, none of the "
    assert report.lines == (f"{said}teacher 1",)
    assert fused_norms(made).record == report.record


def test_compiled_layers_keep_their_own():
    made = trainer(nn.Sequential(Qwen3RMSNorm(8)), compiled=object())
    report = fused_norms(made)
    assert (report.record, report.lines) == ({}, ())
    assert "forward" not in vars(made.model[0])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [100, 128, 2048, 4096])
def test_the_kernel_gives_the_models_own_output_and_gradients_on_a_gpu(size, dtype):
    """As a run tries it; and of so many rows that the weight's gradient is summed in parts."""
    device = torch.device("cuda", torch.cuda.current_device())
    norm = Qwen3RMSNorm(size).to(device, dtype)
    form = form_of(norm, size, dtype, device)
    assert form is not None
    assert (form.eps, form.offset) == (1e-6, 0.0)
    x_RN = torch.randn(2**17, size, device=device, dtype=dtype, requires_grad=True)
    grad_RN = torch.randn_like(x_RN)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        out_RN = form(x_RN, norm.weight)
    kernels = [one for one in profile.events() if "Memcpy" not in one.name]
    assert len(kernels) == 1, "the fused kernel is not taken"
    ours = torch.autograd.grad(out_RN, (x_RN, norm.weight), grad_RN)
    theirs = torch.autograd.grad(norm(x_RN), (x_RN, norm.weight), grad_RN)
    for a, b in zip(ours, theirs, strict=True):
        assert float((a.double() - b.double()).norm()) <= 4 * torch.finfo(dtype).eps * b.norm()
