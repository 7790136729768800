"""Log-probs with a graph: equal to running each row whole, in value and in gradient."""

import dataclasses

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rlvr_core.step import forward
from rlvr_core.step.batch import Row, micro_batches
from rlvr_core.step.forward import completion_logprobs
from tests.support.train.small import Calls

VOCABULARY = 50
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
    "max_position_embeddings": 128,
}


def qwen3(**changes):
    return Qwen3ForCausalLM(Qwen3Config(**{**SMALL, "head_dim": 16, **changes}))


def qwen2(**changes):
    return Qwen2ForCausalLM(Qwen2Config(**SMALL, **changes))


def llama(**changes):
    return LlamaForCausalLM(LlamaConfig(**SMALL, **changes))


def gpt2(**changes):
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=2, n_positions=128, **changes
        )
    )


def perturbed(model, seed=0):
    """Random norms and biases too, so that none can be forgotten unnoticed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


def ragged_rows():
    """Prompts of 3, 7 and 5 tokens; 3, 1 and 2 rows; lengths 1 to 9; holes in the loss mask."""
    generator = torch.Generator().manual_seed(1)

    def ids(n):
        return tuple(torch.randint(0, VOCABULARY, (n,), generator=generator).tolist())

    rows = []
    for prompt_length, lengths in ((3, (4, 9, 1)), (7, (6,)), (5, (2, 3))):
        prompt = ids(prompt_length)
        for n in lengths:
            mask = tuple(i % 4 != 2 for i in range(n))
            rows.append(Row(prompt, ids(n), mask, (-1.0,) * n, 0.5 - len(rows)))
    return rows


def even_rows():
    rows = ragged_rows()
    return [
        Row(rows[i // 2 * 3].prompt_ids[:3], (i, 3, 0, 7 + i), (True,) * 4, (0.0,) * 4, 1.0 + i)
        for i in range(4)
    ]


def plain_logprobs(model, row, temperature):
    """One row whole, full logits."""
    ids = torch.tensor([row.prompt_ids + row.token_ids])
    logits = model(input_ids=ids).logits[0] / temperature
    logp = logits.log_softmax(-1)[len(row.prompt_ids) - 1 : -1]
    return logp.gather(1, torch.tensor(row.token_ids)[:, None])[:, 0]


def objective(logp, mask, advantage):
    return (logp.exp() * mask).sum() * advantage


def compare(model, rows, *, temperature, budget, tolerance):
    model.zero_grad()
    total, values = 0.0, {}
    for batch in micro_batches(rows, tokens_per_micro_batch=budget):
        logp_BT = completion_logprobs(model, batch, temperature=temperature)
        assert (logp_BT[~batch.mask_BT] == 0).all()
        for b, i in enumerate(batch.row_index_B.tolist()):
            mask = torch.tensor(rows[i].loss_mask)
            values[i] = logp_BT[b, : len(mask)][mask]
            total = total + objective(logp_BT[b, : len(mask)], mask, rows[i].advantage)
    total.backward()
    ours = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()

    total = 0.0
    for i, row in enumerate(rows):
        mask = torch.tensor(row.loss_mask)
        logp = plain_logprobs(model, row, temperature)
        torch.testing.assert_close(values[i], logp[mask], rtol=tolerance, atol=tolerance)
        total = total + objective(logp, mask, row.advantage)
    total.backward()
    for name, parameter in model.named_parameters():
        scale = parameter.grad.abs().max().clamp(min=1e-3)
        worst = ((ours[name] - parameter.grad).abs().max() / scale).item()
        assert worst <= 10 * tolerance, name


SHARED_PROMPTS = {
    "qwen3-tied": lambda: qwen3(tie_word_embeddings=True),
    "qwen3-bias": lambda: qwen3(num_key_value_heads=1),
    "qwen2": qwen2,
    "llama-rope": lambda: llama(
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 32,
        }
    ),
}


@pytest.mark.parametrize("name", SHARED_PROMPTS)
@pytest.mark.parametrize("budget", [25, 1000])
def test_packed_forward_equals_whole_rows(name, budget):
    model = perturbed(SHARED_PROMPTS[name]())
    compare(model, ragged_rows(), temperature=0.6, budget=budget, tolerance=1e-5)
    compare(model, even_rows(), temperature=1.0, budget=budget, tolerance=1e-5)


# Qwen's norms are float32 in any model, so sums of their gradients round by their order
@pytest.mark.parametrize(("make", "tolerance"), [(qwen3, 1e-6), (gpt2, 1e-10)])
@pytest.mark.parametrize("budget", [10, 1000])
def test_generic_forward_equals_whole_rows(make, tolerance, budget):
    model = perturbed(make()).double()
    compare(model, ragged_rows(), temperature=0.6, budget=budget, tolerance=tolerance)


def test_completions_of_one_token_need_no_completion_input():
    model = perturbed(qwen3())
    rows = [Row((1, 2), (3,), (True,), (0.0,), 1.0), Row((4,), (5,), (True,), (0.0,), 2.0)]
    compare(model, rows, temperature=1.0, budget=100, tolerance=1e-5)


def test_t3_t6_token_ids_never_decide_a_mask():
    """The pad id, 0 and the end-of-sequence id are tokens like any other."""
    model = perturbed(qwen3(pad_token_id=0, eos_token_id=0))
    rows = [
        Row((0, 0, 5), (0, 0, 0), (True,) * 3, (0.0,) * 3, 1.0),
        Row((0,), (7, 0), (True,) * 2, (0.0,) * 2, 1.0),
    ]
    compare(model, rows, temperature=1.0, budget=1000, tolerance=1e-5)


@pytest.mark.parametrize("make", [qwen3, gpt2])
def test_t17_no_operation_is_done_row_by_row(make):
    """As many for 32 rows as for 4: forward, log-probs and backward."""

    def operations(n_rows):
        model = perturbed(make())
        rows = [Row((1, 2, i), (3, i, 4), (True,) * 3, (0.0,) * 3, 1.0) for i in range(n_rows)]
        (batch,) = micro_batches(rows, tokens_per_micro_batch=1000)
        with Calls() as calls:
            completion_logprobs(model, batch, temperature=1.0).sum().backward()
        return calls.counts

    operations(4)  # what is cached the first time
    assert operations(32) == operations(4)


class Capped(Qwen3ForCausalLM):
    """Treats its logits after the head, as Gemma and Granite do."""

    def forward(self, *args, **kwargs):
        output = super().forward(*args, **kwargs)
        output.logits = 5.0 * torch.tanh(output.logits / 5.0)
        return output


def test_logits_treated_after_the_head_are_honoured():
    model = perturbed(Capped(Qwen3Config(**{**SMALL, "head_dim": 16}))).double()
    compare(model, ragged_rows(), temperature=0.7, budget=100, tolerance=1e-6)


def test_micro_batch_fields_are_all_moved():
    rows = [
        dataclasses.replace(
            row, teacher_prompt_ids=(5, 6, 7), token_advantages=tuple(0.5 for _ in row.token_ids)
        )
        for row in even_rows()
    ]
    (batch,) = micro_batches(rows, tokens_per_micro_batch=1000)
    moved = batch.to("meta")
    for one, other in ((moved, batch), (moved.teacher_batch, batch.teacher_batch)):
        for field in dataclasses.fields(one):
            if field.name not in ("teacher_batch", "on_host"):
                assert getattr(one, field.name).is_meta
                assert getattr(one, field.name).shape == getattr(other, field.name).shape
    assert moved.on_host is batch
    assert moved.teacher_batch.on_host is batch.teacher_batch
    assert batch.on_host is None
    assert batch.teacher_batch.prompt_ids_SP.tolist() == [[5, 6, 7]]
    assert torch.equal(batch.teacher_batch.completion_ids_BT, batch.completion_ids_BT)
    assert batch.teacher_batch.teacher_batch is None


def test_head_check_leaves_the_mode_of_every_module():
    model = qwen3().train()
    model.model.layers[0].eval()
    before = [module.training for module in model.modules()]
    forward.plain_head(model)
    forward.probe_forward_path(model)
    assert [module.training for module in model.modules()] == before
