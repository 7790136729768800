"""Which process has which tokens, and what rows that are split do not go together with."""

import pytest
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from rlvr_cluster.context.parallel import ContextParallel, group_faults
from rlvr_cluster.context.split import Split, chunks
from rlvr_core.api import ConfigError
from rlvr_core.config.model import RunConfig
from rlvr_core.packing.packed import predictors
from rlvr_core.plugins.host import load_host
from rlvr_core.run.inputs import row_split
from rlvr_core.step.batch import Row, micro_batches


def batch_of(*rows):
    """A micro-batch of (prompt length, answer lengths)."""
    made = [
        Row((place,) * prompt, (9,) * n, (True,) * n, (0.0,) * n, 0.0)
        for place, (prompt, answers) in enumerate(rows)
        for n in answers
    ]
    (batch,) = micro_batches(made, tokens_per_micro_batch=10_000)
    return batch


@pytest.mark.parametrize(
    ("length", "size", "owners"),
    [
        (8, 2, [0, 0, 1, 1, 1, 1, 0, 0]),
        (3, 2, [1, 1, 0]),  # chunks of 0, 1, 1 and 1 tokens
        (2, 2, [1, 0]),
        (1, 4, [0]),
        (12, 3, [0, 0, 1, 1, 2, 2, 2, 2, 1, 1, 0, 0]),
    ],
)
def test_the_first_chunk_goes_with_the_last(length, size, owners):
    """By hand: chunk c of 2 C begins at floor(c length / 2 C)."""
    chunk = chunks(torch.arange(length), torch.full((length,), length), size)
    assert torch.minimum(chunk, 2 * size - 1 - chunk).tolist() == owners


@pytest.mark.parametrize("size", [2, 3, 4])
def test_every_token_has_one_owner_and_sees_its_prompt_and_what_is_before_it(size):
    batch = batch_of((1, [1, 2]), (3, [7, 1, 40]), (33, [2, 65]))
    seen, work = {}, []
    texts = [[*range(n)] for n in batch.prompt_len_S.tolist()]
    begin = [0, *batch.prompt_len_S.cumsum(0).tolist()]
    prompts = [[begin[s] + i for i in text] for s, text in enumerate(texts)]
    at, due = begin[-1], {}
    for prompt in prompts:
        due |= {token: prompt[: place + 1] for place, token in enumerate(prompt)}
    for row, fed in enumerate(batch.fed_lengths().tolist()):
        own = [*range(at, at + fed)]
        at += fed
        far = prompts[int(batch.prompt_of_row_B[row])]
        due |= {token: far + own[: place + 1] for place, token in enumerate(own)}
    for index in range(size):
        split = Split.of(batch, index, size)
        keys, own = iter(split.key_K.tolist()), iter(split.own_n.tolist())
        work.append(0)
        for queries, many in zip(split.query_len_R.tolist(), split.key_len_R.tolist(), strict=True):
            piece = [next(keys) for _ in range(many)]
            for place in range(queries):  # causal, aligned at the lower right
                token = next(own)
                assert token not in seen
                assert split.owner_N[token] == index
                assert split.own_n[split.place_N[token]] == token
                seen[token] = piece[: many - queries + place + 1]
                work[-1] += len(seen[token])
        assert next(keys, None) is next(own, None) is None
        assert len(split.own_n) <= split.most
    assert seen == due
    assert max(work) < 1.15 * sum(work) / size


def test_what_predicts_an_answer_s_first_token_is_the_first_process_s_behind_any_prompt():
    """So teachers with prompts of their own give each process the tokens that the policy has."""
    for size in (2, 4):
        owners = [
            Split.of(batch, 0, size).owner_N[predictors(batch)].tolist()
            for batch in (batch_of((n, [1, 6, 17])) for n in (1, 2, 7, 30))
        ]
        assert all(one == owners[0] for one in owners)
        assert owners[0][0] == 0


def test_a_process_without_a_token_computes_the_first_one_for_nobody():
    batch = batch_of((1, [1]))
    split = Split.of(batch, 1, 2)
    assert (split.owner_N.tolist(), split.own_n.tolist(), split.most) == ([0], [0], 1)


def test_processes_that_do_not_divide_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "6")
    assert group_faults(2) == group_faults(3) == []
    (fault,) = group_faults(4)
    assert fault.what == "6 processes do not divide into groups of 4 that split rows"
    assert fault.where == "train.context_parallel"
    assert fault.remedy == (
        "rlvr launch --processes 8, or another multiple of 4",
        "or set train.context_parallel to 1, 2, 3, 6",
    )


def test_a_model_with_windows_is_refused():
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "head_dim": 8}
    config = Gemma3TextConfig(vocab_size=20, num_attention_heads=2, sliding_window=8, **sizes)
    together = object.__new__(ContextParallel)  # without processes
    with pytest.raises(ConfigError, match="cannot be split over processes: its attention has wind"):
        together.admit(Gemma3ForCausalLM(config).eval())


@pytest.mark.parametrize(
    ("key", "changes", "said"),
    [
        ("train.compile", {"train": {"compile": True}}, "does not exchange keys and values"),
        ("model.attention", {"model": {"attention": "eager"}}, "by the attention sdpa, not by"),
        ("model.forward_paths", {"model": {"forward_paths": []}}, "has no core/packed"),
        ("model.lora.dropout", {"model": {"lora": {"dropout": 0.1}}}, "which values are dropped"),
    ],
)
def test_what_does_not_go_together_with_rows_that_are_split_is_refused(key, changes, said):
    train = {"steps": 3, "warmup_steps": 0, "context_parallel": 2} | changes.get("train", {})
    model = {"path": "m"} | changes.get("model", {})
    whole = {"model": model, "data": {"sources": [{"use": "core/jsonl"}]}, "train": train}
    with pytest.raises(ConfigError, match=said) as error:
        row_split(load_host(), RunConfig.model_validate(whole))
    (complaint,) = error.value.complaints
    assert complaint.where == key
    assert complaint.remedy[-1] == "or set train.context_parallel: 1"
    whole["train"] = train | {"context_parallel": 1}
    assert row_split(load_host(), RunConfig.model_validate(whole)) is None
