"""Engine vllm against an independent oracle: a plain forward pass of transformers."""

import importlib.util
import os
import random
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from rlvr_core.api import (
    EngineContext,
    GenerationRequest,
    MachineError,
    RunError,
    SamplingParams,
    ScoreRequest,
)
from rlvr_core.engines.sync import ModuleSource
from rlvr_core.engines.vllm.engine import VllmEngine
from tests.support.vllm_models import (
    DEVICE,
    EOS,
    LONG_PROMPT,
    MAX_LEN,
    distance,
    make_model,
    make_tokenizer,
    oracle,
    running,
    sample,
)

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed"),
]


@pytest.fixture(scope="module")
def tied(tmp_path_factory):
    with running(tmp_path_factory.mktemp("tied")) as found:
        yield found


@pytest.fixture(scope="module")
def untied(tmp_path_factory):
    with running(tmp_path_factory.mktemp("untied"), tied=False) as found:
        yield found


@pytest.fixture(params=["tied", "untied"])
def started(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def flat(tied):
    """An engine whose model samples almost uniformly, so that every token turns up."""
    engine, _, tokenizer = tied
    model = make_model(tokenizer, tied=True, seed=0)
    with torch.no_grad():
        model.model.norm.weight.fill_(0.05)
    engine.load_weights(0, ModuleSource(model))
    return engine, tokenizer


@pytest.fixture
def breakable(tied):
    """An engine that a test may put out of order; its vLLM is whole, so it is mended after."""
    engine, a, _ = tied
    engine.load_weights(0, ModuleSource(a))
    yield tied
    engine._broken = None
    engine.load_weights(0, ModuleSource(a))


# -- weights ------------------------------------------------------------------------------------


@pytest.mark.essential
def test_engine_follows_a_sync_there_and_back(started):
    engine, a, tokenizer = started
    b = make_model(tokenizer, tied=a.config.tie_word_embeddings, seed=1)
    engine.load_weights(0, ModuleSource(a))
    assert distance(engine, a) < 1e-4
    assert distance(engine, b) > 1.0  # the models differ: agreement means something
    engine.load_weights(1, ModuleSource(b))
    assert distance(engine, b) < 1e-4
    engine.load_weights(2, ModuleSource(a))
    assert distance(engine, a) < 1e-4
    assert {answer.version for answer in sample(engine)} == {2}


def test_t2_logprobs_are_those_at_the_sampling_temperature(tied):
    engine, _, tokenizer = tied
    for version, seed in enumerate((0, 1)):
        model = make_model(tokenizer, tied=True, seed=seed)
        engine.load_weights(version, ModuleSource(model))
        assert distance(engine, model, temperature=0.6) < 1e-4


def test_filters_are_part_of_the_logprobs(tied):
    engine, a, _ = tied
    engine.load_weights(0, ModuleSource(a))
    for answer in sample(engine, temperature=0.8, top_k=5):
        with torch.no_grad():
            logits = a(torch.tensor([[*LONG_PROMPT, *answer.token_ids]], device=DEVICE)).logits
        logits = logits[0, len(LONG_PROMPT) - 1 : -1].cpu() / 0.8
        floor = logits.topk(5).values[:, -1:]
        logp = logits.masked_fill(logits < floor, -torch.inf).log_softmax(-1)
        expected = logp.gather(-1, torch.tensor(answer.token_ids)[:, None])[:, 0]
        assert torch.allclose(torch.tensor(answer.logprobs), expected, atol=1e-4)


def test_t16_bfloat16_stays_within_its_rounding(tmp_path):
    with running(tmp_path, dtype=torch.bfloat16) as (engine, a, tokenizer):
        b = make_model(tokenizer, tied=True, seed=1)
        for version, model in enumerate((a, b, a)):
            engine.load_weights(version, ModuleSource(model))
            answers = sample(engine, seeds=range(16))
            differences = torch.cat(
                [
                    (oracle(model, LONG_PROMPT, one.token_ids) - torch.tensor(one.logprobs)).abs()
                    for one in answers
                ]
            )
            # float32 against bfloat16 of a random model with logits of some tens
            assert differences.mean() < 0.15
            assert differences.max() < 1.5


def test_sync_waits_for_nobody(tied):
    engine, a, _ = tied
    future = engine.submit(GenerationRequest("r", LONG_PROMPT, SamplingParams(max_tokens=4), (1,)))
    with pytest.raises(RunError, match="1 completions were being generated"):
        engine.load_weights(9, ModuleSource(a))
    engine.drain(60)
    assert len(future.result(0)) == 1  # refusing breaks nothing
    engine.load_weights(9, ModuleSource(a))
    assert distance(engine, a) < 1e-4


@dataclass(frozen=True)
class Without:
    """Leaves a weight out."""

    module: torch.nn.Module
    name: str
    sharded = False

    def tensors(self):
        whole = ModuleSource(self.module).tensors()
        return (pair for pair in whole if self.name not in pair[0])


# in vLLM the first is part of a fused weight, the second stands alone
@pytest.mark.parametrize("name", ["layers.1.mlp.up_proj", "layers.3.input_layernorm"])
def test_a_weight_that_does_not_arrive_is_an_error_and_the_engine_refuses_work(tmp_path, name):
    with running(tmp_path) as (engine, a, _):
        source = Without(a, name)
        with pytest.raises(RunError, match=r"version 5 failed.*1 of the model's \d+ parameters"):
            engine.load_weights(5, source)
        for use in (lambda: sample(engine), lambda: engine.load_weights(6, ModuleSource(a))):
            with pytest.raises(RunError, match="out of order"):
                use()


@pytest.mark.skipif(DEVICE == "cuda", reason="a GPU has no packed weights that can go stale")
def test_probe_finds_a_head_left_at_the_old_weights(breakable, monkeypatch):
    from rlvr_core.engines.vllm import worker as vllm_worker

    engine, _, tokenizer = breakable
    with monkeypatch.context() as patch:
        patch.setattr(vllm_worker, "repack_tied_heads", lambda model: None)
        with pytest.raises(RunError, match="engine and trainer disagree"):
            engine.load_weights(1, ModuleSource(make_model(tokenizer, tied=True, seed=1)))


def test_t19_a_prefix_cache_that_cannot_be_reset_is_an_error(breakable, monkeypatch):
    engine, a, _ = breakable
    with monkeypatch.context() as patch:
        patch.setattr(engine._running.llm, "reset_prefix_cache", lambda **_: False)
        with pytest.raises(RunError, match="did not reset its prefix cache"):
            engine.load_weights(1, ModuleSource(a))


def test_weights_that_are_not_finite_are_an_error(breakable):
    engine, _, tokenizer = breakable
    model = make_model(tokenizer, tied=True, seed=0)
    with torch.no_grad():
        model.model.norm.weight.fill_(float("nan"))
    with pytest.raises(RunError, match=r"not finite|disagree by nan"):
        engine.load_weights(1, ModuleSource(model))


# -- generation ---------------------------------------------------------------------------------


def test_t18_seeds_differ_and_repeat(tied):
    engine, _, _ = tied
    first, again = sample(engine, seeds=range(16)), sample(engine, seeds=range(16))
    assert len({answer.token_ids for answer in first}) == 16
    assert [answer.token_ids for answer in first] == [answer.token_ids for answer in again]
    shuffled = sample(engine, seeds=[9, 3])
    assert [a.token_ids for a in shuffled] == [first[9].token_ids, first[3].token_ids]


@pytest.mark.parametrize("seed", [0, -1, 2**31, 2**63 - 1, 2**63, 2**64 - 1])
def test_t18_any_integer_is_a_seed(tied, seed):
    engine, _, _ = tied
    (first,), (again,) = sample(engine, seeds=[seed]), sample(engine, seeds=[seed])
    assert first.token_ids == again.token_ids


def test_more_prompts_than_fit_one_step_of_the_engine(tied):
    engine, a, _ = tied
    engine.load_weights(0, ModuleSource(a))
    draw = torch.Generator().manual_seed(0)
    prompts = [torch.randint(5, 290, (150,), generator=draw).tolist() for _ in range(60)]
    params = SamplingParams(max_tokens=3)
    futures = [
        engine.submit(GenerationRequest("same-id", tuple(prompt), params, (2 * i, 2 * i + 1)))
        for i, prompt in enumerate(prompts)
    ]  # 9000 prompt tokens; a step of the CPU build takes 4096
    engine.drain(120)
    for prompt, future in zip(prompts, futures, strict=True):
        for answer in future.result(0):
            expected = oracle(a, prompt, answer.token_ids)
            assert torch.allclose(torch.tensor(answer.logprobs), expected, atol=1e-4)


def test_a_cache_too_small_for_all_completions_changes_nothing(tied, tmp_path):
    full, a, _ = tied
    full.load_weights(0, ModuleSource(a))
    expected = [answer.token_ids for answer in sample(full, seeds=range(24), max_tokens=100)]
    folder = tmp_path / "model"
    # 4 layers x 2 heads x 32 x 2 x 4 bytes = 2 KiB a token: 1 MiB has room for 3 of them
    with running(folder, kv_cache_mb=1) as (engine, _, _):
        answers = sample(engine, seeds=range(24), max_tokens=100)
        assert [answer.token_ids for answer in answers] == expected
        for answer in answers:
            logp = oracle(a, LONG_PROMPT, answer.token_ids)
            assert torch.allclose(torch.tensor(answer.logprobs), logp, atol=1e-4)


def test_end_of_sequence_is_kept_and_ends(flat):
    engine, _ = flat
    answers = sample(engine, seeds=range(48), max_tokens=80)
    ended = [answer for answer in answers if answer.finish_reason == "stop"]
    assert ended
    for answer in answers:
        assert len(answer.token_ids) == len(answer.logprobs)
        assert (answer.token_ids[-1] == EOS) == (answer.finish_reason == "stop")
        assert EOS not in answer.token_ids[:-1]
        assert answer.finish_reason == "stop" or len(answer.token_ids) == 80
        assert "<eos>" not in answer.text


def test_t63_text_is_that_of_the_tokens_behind_a_stop_string_too(flat):
    engine, tokenizer = flat
    stop = "e"
    answers = sample(engine, seeds=range(48), max_tokens=60, stop=(stop,))
    stopped = [one for one in answers if one.finish_reason == "stop" and EOS not in one.token_ids]
    assert stopped
    for answer in answers:
        assert answer.text == tokenizer.decode(answer.token_ids, skip_special_tokens=True)
    for answer in stopped:
        assert stop in answer.text
        before = tokenizer.decode(answer.token_ids[:-1], skip_special_tokens=True)
        assert stop not in before  # not one token more than it takes
    assert any(not one.text.endswith(stop) for one in stopped)  # a token may reach beyond it


def test_a_special_token_can_be_a_stop_string(flat):
    engine, tokenizer = flat
    turn = tokenizer.convert_tokens_to_ids("<turn>")
    answers = sample(engine, seeds=range(64), max_tokens=80, stop=("<turn>",))
    assert any(one.token_ids[-1] == turn and one.finish_reason == "stop" for one in answers)
    assert all(turn not in one.token_ids[:-1] for one in answers)


def test_t28_prompt_and_completion_may_fill_the_engine(tied):
    engine, a, _ = tied
    engine.load_weights(0, ModuleSource(a))
    prompt = tuple(3 + i % 280 for i in range(MAX_LEN - 5))
    answers = sample(engine, prompt, seeds=range(8), max_tokens=5)
    assert max(len(answer.token_ids) for answer in answers) == 5
    assert distance(engine, a, prompt=prompt) < 1e-4  # 24 asked for, 5 fit
    assert {one.finish_reason for one in sample(engine, prompt)} <= {"length", "stop"}


@pytest.mark.parametrize(("prompt", "message"), [((), "no tokens"), ((5,) * MAX_LEN, "no room")])
def test_prompts_that_cannot_be_answered(tied, prompt, message):
    with pytest.raises(RunError, match=message):
        sample(tied[0], prompt)


def test_what_vllm_refuses_is_an_error_of_the_request(tied):
    engine, _, _ = tied
    with pytest.raises(RunError, match=r"request r: vLLM refuses it: .*temperature"):
        sample(engine, temperature=2.5)
    with pytest.raises(RunError, match="request r: vLLM refuses it"):
        sample(engine, (5, 10**6))
    assert len(sample(engine)) == 4


def test_t20_an_aborted_completion_is_sampled_again(tied):
    engine, _, _ = tied
    expected = [answer.token_ids for answer in sample(engine, max_tokens=30)]
    llm, calls = engine._running.llm, []
    step = llm.step

    def aborting_step():
        calls.append(1)
        if len(calls) == 6:
            llm.engine_core.engine_core.pause_scheduler(mode="abort", clear_cache=False)
            llm.engine_core.engine_core.resume_scheduler()
        return step()

    llm.step = aborting_step
    try:
        answers = sample(engine, max_tokens=30)
    finally:
        del llm.step
    assert len(calls) > 31  # it began anew
    assert [answer.token_ids for answer in answers] == expected
    assert {answer.finish_reason for answer in answers} <= {"length", "stop"}


def test_t20_an_engine_that_aborts_for_ever_is_an_error(tied):
    engine, _, _ = tied
    llm = engine._running.llm
    step = llm.step

    def aborting_step():
        llm.abort_request(list(engine._running.queue._samples))
        return step()

    llm.step = aborting_step
    try:
        with pytest.raises(RunError, match="ended it by 'abort' 3 times"):
            sample(engine)
    finally:
        del llm.step
    assert len(sample(engine)) == 4  # and the engine goes on


def test_drain_gives_up_at_its_deadline(tied):
    engine, _, _ = tied
    params = SamplingParams(max_tokens=100)
    future = engine.submit(GenerationRequest("late", LONG_PROMPT, params, (1, 2)))
    with pytest.raises(RunError, match="not finished within 0 s; 2 completions were left"):
        engine.drain(0.0)
    with pytest.raises(RunError, match="not finished"):
        future.result(0)
    assert len(sample(engine)) == 4  # nothing is left behind


# -- the process --------------------------------------------------------------------------------


def test_engine_leaves_the_process_as_it_was(tmp_path, monkeypatch):
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    set_num_threads, threads = torch.set_num_threads, torch.get_num_threads()
    environment = dict(os.environ)
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    expected = random.random(), np.random.rand(), torch.rand(3).tolist()
    had_group = torch.distributed.is_initialized()
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, tied=True, seed=0)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)

    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    engine = VllmEngine(VllmEngine.Config(kv_cache_mb=64))
    engine.start(EngineContext(str(tmp_path), model, tokenizer, torch.float32, MAX_LEN, 7))
    sample(engine, seeds=(1, 2))
    engine.load_weights(1, ModuleSource(model))
    engine.sleep()
    engine.wake()
    sample(engine)
    engine.close()
    engine.close()
    assert (random.random(), np.random.rand(), torch.rand(3).tolist()) == expected
    assert dict(os.environ) == environment
    assert torch.set_num_threads is set_num_threads
    assert torch.get_num_threads() == threads
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() == torch.float32
    assert torch.distributed.is_initialized() == had_group
    with pytest.raises(RuntimeError, match="not started"):
        engine.submit(GenerationRequest("r", LONG_PROMPT, SamplingParams(), (1,)))


def test_a_model_that_cannot_be_started_says_what_to_do(tmp_path):
    tokenizer = make_tokenizer()
    model = make_model(tokenizer, tied=True, seed=0)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    engine = VllmEngine(VllmEngine.Config(kv_cache_mb=64))
    with pytest.raises(MachineError, match="could not start") as caught:
        engine.start(EngineContext(str(tmp_path), model, tokenizer, torch.float32, 4096, 7))
    assert "max_prompt_tokens" in str(caught.value)
    engine.close()


def test_ranks_must_have_their_process_group_first(tmp_path, monkeypatch):
    from rlvr_core.engines.vllm.process import check_process_group

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: False)
    with pytest.raises(RunError, match="before the process group of the 2 ranks"):
        check_process_group()


# -- a GPU, not yet run: docs/engines.md ---------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="there is no CUDA device")
@pytest.mark.parametrize("order", ["wake-then-sync", "wake-then-generate"])
@pytest.mark.parametrize("level", [1, 2])
def test_sleep_gives_memory_back_and_loses_nothing(tmp_path, order, level):
    options = {"gpu_memory_utilization": 0.3, "sleep_level": level}
    with running(tmp_path, **options) as (engine, a, tokenizer):
        engine.load_weights(0, ModuleSource(a))
        before = sample(engine)
        free_awake = torch.cuda.mem_get_info()[0]
        engine.sleep()
        assert torch.cuda.mem_get_info()[0] > free_awake + (32 << 20)
        with pytest.raises(RuntimeError, match="asleep"):
            sample(engine)
        engine.wake()
        if order == "wake-then-sync":
            b = make_model(tokenizer, tied=True, seed=1)
            engine.load_weights(1, ModuleSource(b))
            assert distance(engine, b) < 1e-2
        else:
            assert [one.token_ids for one in sample(engine)] == [one.token_ids for one in before]


# -- given text ---------------------------------------------------------------------------------


def test_given_text_is_scored_under_the_current_weights(tied):
    engine, a, tokenizer = tied
    other = make_model(tokenizer, tied=True, seed=5)
    prompt = tuple(LONG_PROMPT)
    for version, model in ((1, other), (2, a)):
        engine.load_weights(version, ModuleSource(model))
        (answer,) = sample(engine, seeds=[0], temperature=0.0, max_tokens=8)
        changed = (*answer.token_ids[:-1], answer.token_ids[-1] ^ 1)
        asked = [ScoreRequest(prompt, text) for text in (answer.token_ids, changed)]
        greedy, not_quite = engine.score([*asked, *asked], 120)[2:]
        assert all(greedy.greedy)
        assert not_quite.greedy == (True,) * 7 + (False,)
        for text, scores in ((answer.token_ids, greedy), (changed, not_quite)):
            wanted = oracle(model, LONG_PROMPT, text)
            assert scores.logprobs == pytest.approx(wanted.tolist(), abs=1e-3)
    with pytest.raises(RunError, match="4 of 4 texts were left"):
        engine.score([*asked, *asked], -1.0)
    assert len(sample(engine)) == 4  # and it goes on


def test_t19_probe_finds_a_prefix_cache_that_was_kept(breakable, monkeypatch):
    engine, _, tokenizer = breakable
    with monkeypatch.context() as patch:
        patch.setattr(engine._running.llm, "reset_prefix_cache", lambda **_: True)
        with pytest.raises(RunError, match="engine and trainer disagree"):
            engine.load_weights(2, ModuleSource(make_model(tokenizer, tied=True, seed=1)))
