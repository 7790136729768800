"""The embedded engine against the model's own forward and against transformers' generate."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from rlvr_core.api import EngineContext, MachineError, RunError
from rlvr_core.engines.decode import HuggingFaceDecoder
from tests.support.embedded import (
    check_logprobs,
    exact_logits,
    generate,
    make_model,
    make_tokenizer,
    request,
    start,
)

TOKENIZER = make_tokenizer()
PROMPTS = [(5, 9, 12), (7,), (30, 31, 32, 33, 34, 35)]


@pytest.fixture
def model():
    return make_model(TOKENIZER)


def gpt2():
    torch.manual_seed(0)
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=len(TOKENIZER),
            n_embd=32,
            n_layer=2,
            n_head=2,
            n_positions=256,
            initializer_range=0.3,
            bos_token_id=None,
            eos_token_id=None,
        )
    ).eval()


@pytest.mark.parametrize(
    ("temperature", "top_p", "top_k"),
    [(1.0, 1.0, 0), (0.6, 1.0, 0), (1.0, 0.8, 0), (1.0, 1.0, 7), (0.7, 0.9, 20), (1.4, 0.5, 3)],
)
def test_logprobs_are_of_the_distribution_sampled_from(model, temperature, top_p, top_k):
    engine = start(model, TOKENIZER)
    params = {"temperature": temperature, "top_p": top_p, "top_k": top_k, "max_tokens": 12}
    results = generate(engine, *(request(p, n=5, seed=i, **params) for i, p in enumerate(PROMPTS)))
    for prompt, group in zip(PROMPTS, results, strict=True):
        for answer in group:
            logits = exact_logits(model, prompt, answer.token_ids) / temperature
            for t, token in enumerate(answer.token_ids):
                p = logits[t].softmax(-1)
                order = p.argsort(descending=True)
                kept = order[: top_k or None]
                mass = p[kept] / p[kept].sum()
                kept = kept[mass.cumsum(0) - mass < top_p]
                assert token in kept
                expected = (p[token] / p[kept].sum()).log().item()
                assert answer.logprobs[t] == pytest.approx(expected, abs=2e-5)


def test_greedy_equals_generate_and_its_logprobs_are_at_temperature_one(model):
    engine = start(model, TOKENIZER)
    results = generate(engine, *(request(p, temperature=0, max_tokens=15) for p in PROMPTS))
    for prompt, (answer,) in zip(PROMPTS, results, strict=True):
        theirs = model.generate(
            torch.tensor([prompt]), do_sample=False, max_new_tokens=15, pad_token_id=0
        )
        assert answer.token_ids == tuple(theirs[0, len(prompt) :].tolist())
        check_logprobs(model, prompt, answer)


def test_greedy_ignores_filters_and_mixes_with_sampling(model):
    engine = start(model, TOKENIZER)
    (alone,) = generate(engine, request(PROMPTS[0], temperature=0, max_tokens=8))
    mixed = generate(
        engine,
        request(PROMPTS[0], temperature=0, top_k=2, top_p=0.3, max_tokens=8),
        request(PROMPTS[0], n=4, temperature=1.3, max_tokens=8),
    )
    assert mixed[0][0].token_ids == alone[0].token_ids
    assert mixed[0][0].logprobs == pytest.approx(alone[0].logprobs, abs=1e-5)


def test_other_requests_do_not_change_a_completion():
    model = make_model(TOKENIZER, dtype=torch.float64)
    engine = start(model, TOKENIZER)
    wanted = request(PROMPTS[0], n=3, seed=100, max_tokens=20)
    (alone,) = generate(engine, wanted)
    crowd = [request(PROMPTS[2], n=6, seed=7, max_tokens=9, top_p=0.9), wanted]
    crowd.append(request(PROMPTS[1], n=2, seed=3, temperature=0.5, max_tokens=30))
    assert generate(engine, *crowd)[1] == alone
    assert generate(start(model, TOKENIZER, max_rows=1), *crowd)[1] == alone


def test_the_global_generators_are_left_alone(model):
    engine = start(model, TOKENIZER)
    before = torch.get_rng_state()
    generate(engine, request(PROMPTS[0], n=4, max_tokens=8))
    assert torch.equal(torch.get_rng_state(), before)


def test_t18_seeds_decide_and_differ(model):
    engine = start(model, TOKENIZER)
    (group,) = generate(engine, request(PROMPTS[0], n=40, max_tokens=16))
    assert len({answer.token_ids for answer in group}) == 40
    (again,) = generate(engine, request(PROMPTS[0], n=40, max_tokens=16))
    assert again == group


def test_finish_reasons_and_limits(model):
    free = start(model, TOKENIZER)
    ((answer,),) = generate(free, request(PROMPTS[0], max_tokens=10))
    assert (len(answer.token_ids), answer.finish_reason) == (10, "length")
    model.generation_config.eos_token_id = [answer.token_ids[4], answer.token_ids[7]]
    try:
        engine = start(model, TOKENIZER)
        ((ended,),) = generate(engine, request(PROMPTS[0], max_tokens=10))
        first = min(answer.token_ids.index(t) for t in model.generation_config.eos_token_id)
        assert ended.token_ids == answer.token_ids[: first + 1]
        assert ended.logprobs == pytest.approx(answer.logprobs[: first + 1], abs=1e-6)
        assert ended.finish_reason == "stop"
        # the end token as the last one allowed is an end, not a cut
        ((tight,),) = generate(engine, request(PROMPTS[0], max_tokens=first + 1))
        assert tight.finish_reason == "stop"
    finally:
        model.generation_config.eos_token_id = None


def test_the_models_longest_text_cuts(model):
    engine = start(model, TOKENIZER, max_model_len=8)
    results = generate(
        engine, request(PROMPTS[0], max_tokens=20), request((1,) * 8), request((1,) * 9, n=2)
    )
    assert [len(a.token_ids) for group in results for a in group] == [5, 0, 0, 0]
    assert {a.finish_reason for group in results for a in group} == {"length"}


@pytest.mark.parametrize("special", [0, 1])
def test_t3_t6_the_pad_token_is_an_ordinary_token(special):
    """Whether pad is id 0 or the end token: what was sampled stays, of its true length."""
    model = make_model(TOKENIZER, pad_token_id=special)
    engine = start(model, TOKENIZER)
    prompts = [(0, 0, 1), (1,), (0, 5, 0, 0)]
    results = generate(engine, *(request(p, n=100, max_tokens=10) for p in prompts))
    end = TOKENIZER.eos_token_id
    seen = 0
    for prompt, group in zip(prompts, results, strict=True):
        for answer in group:
            assert end not in answer.token_ids[:-1]
            assert (len(answer.token_ids) == 10) or answer.token_ids[-1] == end
            if special not in answer.token_ids:
                continue
            seen += 1
            check_logprobs(model, prompt, answer)
    assert seen


def test_a_model_of_another_family_runs_through_its_own_cache():
    model = gpt2()
    engine = start(model, TOKENIZER)
    limits = (4, 9, 13)
    results = generate(
        engine,
        *(request(p, n=2, max_tokens=n) for p, n in zip(PROMPTS, limits, strict=True)),
    )
    for prompt, group in zip(PROMPTS, results, strict=True):
        for answer in group:
            check_logprobs(model, prompt, answer)


def test_weights_are_those_of_the_moment_and_versions_are_labels(model):
    engine = start(model, TOKENIZER)
    one = request(PROMPTS[0], n=2, max_tokens=8)
    (before,) = generate(engine, one)
    assert {answer.version for answer in before} == {0}
    with torch.no_grad():
        model.model.layers[0].mlp.down_proj.weight.mul_(-2.0)

    class Source:
        module = model
        sharded = False

        def tensors(self):
            return iter(())

    engine.load_weights(3, Source())
    (after,) = generate(engine, one)
    assert {answer.version for answer in after} == {3}
    for answer in after:
        check_logprobs(model, PROMPTS[0], answer)
    assert after[0].logprobs != before[0].logprobs


def test_dropout_is_off_and_modes_are_put_back():
    model = make_model(TOKENIZER, attention_dropout=0.5).train()
    model.model.layers[1].eval()
    modes = [module.training for module in model.modules()]
    ((answer,),) = generate(start(model, TOKENIZER), request(PROMPTS[0], max_tokens=8))
    assert [module.training for module in model.modules()] == modes
    model.eval()
    check_logprobs(model, PROMPTS[0], answer)


def test_half_precision_is_the_runs_autocast():
    model = make_model(TOKENIZER)
    engine = start(model, TOKENIZER, dtype=torch.bfloat16)
    ((answer,),) = generate(engine, request(PROMPTS[0], max_tokens=12))
    logp = exact_logits(model, PROMPTS[0], answer.token_ids).log_softmax(-1)
    expected = logp.gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0]
    gap = (torch.tensor(answer.logprobs) - expected).abs().max()
    assert 1e-6 < gap < 0.5


def test_a_prompt_is_computed_once_for_all_its_completions():
    model = make_model(TOKENIZER)
    shapes = []
    model.register_forward_pre_hook(
        lambda _, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    engine = start(model, TOKENIZER)
    generate(engine, request((1, 2, 3, 4), n=8, max_tokens=3))
    assert shapes == [(1, 4), (8, 1), (8, 1)]


def test_waves_keep_to_the_configured_size(monkeypatch):
    model = make_model(TOKENIZER)
    widest = []
    original = HuggingFaceDecoder.step

    def spy(self, token_B):
        widest.append(len(token_B))
        return original(self, token_B)

    engine = start(model, TOKENIZER, max_rows=10, max_batch_tokens=60)
    monkeypatch.setattr(HuggingFaceDecoder, "step", spy)
    results = generate(engine, *(request((1, 2), n=4, seed=i, max_tokens=8) for i in range(5)))
    assert max(widest) == 4  # two requests would need 8 x 10 positions
    assert [len(group) for group in results] == [4] * 5


def test_deadlines_and_failures_reach_every_future():
    model = make_model(TOKENIZER)
    engine = start(model, TOKENIZER)
    future = engine.submit(request(PROMPTS[0], max_tokens=200))
    with pytest.raises(RunError, match="deadline"):
        engine.drain(timeout=0.0)
    assert isinstance(future.exception(timeout=0), RunError)
    generate(engine, request(PROMPTS[0], max_tokens=2))


def test_an_empty_prompt_and_a_missing_model_are_refused():
    engine = start(make_model(TOKENIZER), TOKENIZER)
    with pytest.raises(ValueError, match="empty"):
        engine.submit(request(()))
    with pytest.raises(MachineError, match="own model"):
        type(engine)(engine.Config()).start(
            EngineContext("", None, TOKENIZER, torch.float32, 10, 0)
        )


def test_a_model_with_more_rows_than_the_tokenizer_has_tokens():
    model = make_model(TOKENIZER, vocab_size=len(TOKENIZER) + 37)
    engine = start(model, TOKENIZER)
    (group,) = generate(engine, request((1, 2), n=60, max_tokens=10, stop=("zz",)))
    assert any(token >= len(TOKENIZER) for answer in group for token in answer.token_ids)
