"""What engine vllm asks of vLLM around a training phase, at both levels of sleep."""

from types import SimpleNamespace

import pytest
import torch

from rlvr_core.api import GenerationRequest, SamplingParams
from rlvr_core.engines.vllm.engine import VllmEngine, _Running


class Llm:
    """Writes down what it is asked."""

    def __init__(self):
        self.asked = []

    def collective_rpc(self, name, kwargs=None):
        if name == "update_weights":
            name += " " + "+".join(kwargs["update_info"]["weights"])
        self.asked.append(name)

    def sleep(self, level):
        self.asked.append(f"sleep {level}")

    def wake_up(self, tags):
        self.asked.append(f"wake {'+'.join(tags)}")
        return tags == ["kv_cache"]

    def reset_prefix_cache(self, reset_running_requests):
        return True

    def set_weight_version(self, version):
        self.asked.append(f"version {version}")


class Queue(list):
    version = 3

    def submit(self, request):
        return request


class Source:
    module = None
    sharded = False

    def __init__(self, name):
        self.name = name

    def tensors(self):
        return iter([self.name])


@pytest.fixture
def engine(monkeypatch):
    monkeypatch.setattr(VllmEngine, "_probe", lambda *_: None)

    def make(device="cuda", **options):
        engine = VllmEngine(VllmEngine.Config(**options))
        context = SimpleNamespace(max_model_len=64)
        place = torch.device(device)
        engine._running = _Running(Llm(), Queue(), context, place, probe_ids=())
        return engine

    return make


def asked(engine):
    found, engine._running.llm.asked = engine._running.llm.asked, []
    return found


def sync(name, version):
    return [
        "start_weight_update",
        f"update_weights {name}",
        "finish_weight_update",
        *([] if version is None else [f"version {version}"]),
    ]


REQUEST = GenerationRequest("r", (1, 2), SamplingParams(max_tokens=4), (0,))


@pytest.mark.parametrize("level", [1, 2])
def test_the_cache_comes_back_after_the_new_weights(engine, level):
    one = engine(sleep_level=level)
    one.load_weights(1, Source("a"))
    assert asked(one) == sync("a", 1)
    one.sleep()
    with pytest.raises(RuntimeError, match="asleep"):
        one.submit(REQUEST)
    one.wake()
    assert asked(one) == [f"sleep {level}", "wake weights"]
    one.load_weights(2, Source("b"))
    assert asked(one) == [*sync("b", None), "wake kv_cache", "version 2"]
    one.submit(REQUEST)
    assert asked(one) == []


def test_after_a_skipped_step_level_1_has_its_weights_and_level_2_asks_for_them_again(engine):
    one = engine(sleep_level=1)
    one.load_weights(1, Source("a"))
    one.sleep()
    one.wake()
    asked(one)
    one.submit(REQUEST)
    assert asked(one) == ["wake kv_cache"]

    two = engine(sleep_level=2)
    two.load_weights(1, Source("a"))
    two.sleep()
    two.wake()
    asked(two)
    two.submit(REQUEST)
    assert asked(two) == [*sync("a", None), "wake kv_cache", "version 1"]
    two.submit(REQUEST)
    assert asked(two) == []


def test_weights_that_the_trainer_never_sent_are_not_thrown_away(engine):
    one = engine(sleep_level=2)
    one.sleep()
    one.wake()
    one.submit(REQUEST)
    assert asked(one) == ["sleep 1", "wake weights", "wake kv_cache"]


@pytest.mark.parametrize("options", [{"device": "cpu"}, {"sleep": False}])
def test_where_there_is_no_memory_to_give_nothing_happens(engine, options):
    one = engine(sleep_level=2, **options)
    one.load_weights(1, Source("a"))
    asked(one)
    one.sleep()
    one.wake()
    one.submit(REQUEST)
    assert asked(one) == []
