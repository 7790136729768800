"""The scripted engine does exactly what its config says."""

import pytest
import torch
from pydantic import ValidationError

from rlvr_core.api import EngineContext, MachineError, RunError
from rlvr_core.engines.scripted import ScriptedEngine
from tests.support.embedded import exact_logits, make_model, make_tokenizer, request

TOKENIZER = make_tokenizer()


def start(model=None, max_model_len=200, **options):
    engine = ScriptedEngine(ScriptedEngine.Config(**options))
    engine.start(EngineContext("", model, TOKENIZER, torch.float32, max_model_len, 0))
    return engine


def ask(engine, *requests):
    futures = [engine.submit(one) for one in requests]
    engine.drain()
    return [future.result() for future in futures]


def test_texts_are_taken_in_turn():
    engine = start(answers={"add": ["one", "two", "three"], "": ["other"]})
    first, other = ask(engine, request((5,), n=2, id="add_1"), request((5,), n=2, id="x"))
    (second,) = ask(engine, request((6,), n=2, id="add_2"))
    assert [a.text for a in first + second] == ["one", "two", "three", "one"]
    assert [a.text for a in other] == ["other", "other"]
    assert first[0].token_ids == (*TOKENIZER.encode("one"), TOKENIZER.eos_token_id)
    assert first[0].logprobs == (-1.0,) * len(first[0].token_ids)
    assert first[0].finish_reason == "stop"


def test_keys_match_prompt_text():
    engine = start(answers={"37+48": ["85"]})
    ((answer,),) = ask(engine, request(TOKENIZER.encode("What is 37+48?")))
    assert answer.token_ids == (*TOKENIZER.encode("85"), TOKENIZER.eos_token_id)


def test_caps_cut_and_aborts_are_marked():
    engine = start(answers={"": ["a longer answer"]}, abort=[1])
    whole = (*TOKENIZER.encode("a longer answer"), TOKENIZER.eos_token_id)
    cut, aborted = ask(engine, request((1,), max_tokens=3), request((1,)))
    assert (cut[0].token_ids, cut[0].finish_reason) == (whole[:3], "length")
    assert (aborted[0].token_ids, aborted[0].finish_reason) == (whole[: len(whole) // 2], "abort")


def test_a_stop_string_ends_an_answer_and_no_end_token_follows():
    engine = start(answers={"": ["call</x> and </y>more"]})
    ((answer,),) = ask(engine, request((1,), stop=("</y>", "</x>")))
    assert answer.token_ids == tuple(TOKENIZER.encode("call</x>"))
    assert answer.finish_reason == "stop"


def test_logprobs_of_the_model():
    model = make_model(TOKENIZER)
    engine = start(model, answers={"": ["stop here"]}, logprob=None)
    ((answer,),) = ask(engine, request((4, 5), temperature=0.5))
    logp = (exact_logits(model, (4, 5), answer.token_ids) / 0.5).log_softmax(-1)
    expected = logp.gather(1, torch.tensor(answer.token_ids)[:, None])[:, 0].tolist()
    assert answer.logprobs == pytest.approx(expected, abs=1e-5)


def test_delays_and_missing_answers():
    engine = start(answers={"alpha": ["x"]}, delay=0.05)
    fine, unknown = (engine.submit(request((1,), id=i)) for i in ("alpha", "b"))
    engine.drain()
    assert fine.result()[0].text == "x"
    assert "no answer" in str(unknown.exception())
    late = engine.submit(request((1,), id="alpha"))
    with pytest.raises(RunError, match="deadline"):
        engine.drain(timeout=0.01)
    assert isinstance(late.exception(), RunError)


def test_bad_scripts_are_refused():
    with pytest.raises(ValidationError):
        ScriptedEngine.Config(answers={})
    with pytest.raises(ValidationError):
        ScriptedEngine.Config(answers={"": []})
    with pytest.raises(MachineError, match="without a model"):
        start(answers={"": ["x"]}, logprob=None)
