"""Log-probs of given text: those of the model's own forward, however the texts are batched."""

import random

import pytest
import torch

from rlvr_core.api import RunError, Scorer, ScoreRequest
from rlvr_core.engines import score as scoring
from rlvr_core.engines.scripted import ScriptedEngine
from tests.support.embedded import (
    exact_logits,
    generate,
    make_model,
    make_tokenizer,
    request,
    start,
)

TOKENIZER = make_tokenizer()


@pytest.fixture(scope="module")
def model():
    return make_model(TOKENIZER)


def requests(n=12):
    """Texts of many lengths, some of which differ in nothing but their last token."""
    rng = random.Random(0)
    found = []
    for _ in range(n // 2):
        prompt = tuple(rng.randrange(3, 250) for _ in range(rng.randint(1, 20)))
        text = tuple(rng.randrange(3, 250) for _ in range(rng.randint(1, 9)))
        found += [ScoreRequest(prompt, text), ScoreRequest(prompt, (*text[:-1], 5))]
    return found


@pytest.mark.parametrize("options", [{}, {"max_rows": 2}, {"max_batch_tokens": 30}])
def test_scores_are_those_of_the_models_forward(model, options, monkeypatch):
    if not options:
        monkeypatch.setattr(scoring, "_LOGIT_BYTES", 4 * 300 * 10)  # ten positions at a time
    asked = requests()
    found = start(model, TOKENIZER, **options).score(asked, None)
    for one, scores in zip(asked, found, strict=True):
        logits_TV = exact_logits(model, one.prompt_ids, one.token_ids)
        logp_TV = logits_TV.log_softmax(-1)
        wanted = [float(logp_TV[t, token]) for t, token in enumerate(one.token_ids)]
        assert scores.logprobs == pytest.approx(wanted, abs=1e-4)
        best = logits_TV.argmax(-1).tolist()
        assert list(scores.greedy) == [a == b for a, b in zip(best, one.token_ids, strict=True)]


def test_a_greedy_answer_is_greedy_and_scored_as_it_was_sampled(model):
    engine = start(model, TOKENIZER)
    prompt = (10, 11, 12)
    ((answer,),) = generate(engine, request(prompt, temperature=0.0, max_tokens=9))
    (scores,) = engine.score([ScoreRequest(prompt, answer.token_ids)], None)
    assert all(scores.greedy)
    assert len(scores.greedy) == 9
    # what was sampled greedily has log-prob 0 there; the model's own is asked for here
    logp_TV = exact_logits(model, prompt, answer.token_ids).log_softmax(-1)
    assert scores.logprobs == pytest.approx(logp_TV.amax(-1).tolist(), abs=1e-4)


def test_shared_inputs_are_run_once(model, monkeypatch):
    rows = []
    real = scoring._forward
    monkeypatch.setattr(
        scoring, "_forward", lambda m, ids, keep: rows.extend(ids) or real(m, ids, keep)
    )
    letters = [ScoreRequest((7, 8, 9), (letter,)) for letter in range(20, 24)]
    found = start(model, TOKENIZER).score(letters, None)
    assert rows == [(7, 8, 9)]
    logp_V = exact_logits(model, (7, 8, 9), (20,)).log_softmax(-1)[0]
    wanted = torch.tensor([float(logp_V[letter]) for letter in range(20, 24)])
    assert [one.logprobs[0] for one in found] == pytest.approx(wanted.tolist(), abs=1e-4)


def test_deadline_and_empty_texts(model):
    engine = start(model, TOKENIZER)
    with pytest.raises(RunError, match="12 of 12 texts left"):
        engine.score(requests(), -1.0)
    with pytest.raises(ValueError, match="must have tokens"):
        engine.score([ScoreRequest((1,), ())], None)
    assert engine.score([], None) == []


def test_only_some_engines_can(model):
    assert isinstance(start(model, TOKENIZER), Scorer)
    assert not isinstance(ScriptedEngine(ScriptedEngine.Config(answers={"": ["x"]})), Scorer)
