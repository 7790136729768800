"""What users write raises, gives nonsense or is no plain code: the fault is named as theirs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import rlvr_core
from rlvr_core.algorithm.estimate import Estimator
from rlvr_core.api import (
    AdvantageOutput,
    AdvantageTraits,
    Completion,
    ConfigError,
    Generation,
    JudgedStep,
    Metric,
    PluginError,
    Problem,
    RunError,
    Source,
)
from rlvr_core.config.model import ComponentRef, TrainSection
from rlvr_core.config.resolve import build
from rlvr_core.data.load import check_problems
from rlvr_core.plugins.blame import blame, faults_named
from rlvr_core.plugins.host import load_host
from rlvr_core.record.metrics import reported
from rlvr_core.rollout.collect import _fault
from rlvr_core.rollout.samplers.base import SamplerBase, SamplerConfig
from rlvr_core.step.optim import Optimizer, learning_rate

ENDS = ["raise KeyError('boom')", "raise SystemExit(0)", "raise GeneratorExit", "1 / 0"]
"""Ways for code to end that are no way to end a run."""


@pytest.fixture(scope="module")
def host():
    return load_host({"RLVR_PLUGINS": ""})


@pytest.fixture
def part(tmp_path, monkeypatch, host):
    """Makes the component ``name`` of a file with this source."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)

    def make(kind, source, name="It", **options):
        (tmp_path / "mine.py").write_text(source)
        return build(host, kind, ComponentRef(use=f"./mine.py:{name}", **{"with": options}))

    return make


def problem(id_="p", **spec):
    return Problem(id=id_, prompt="Say x.", verifier="core/exact", spec=spec, dataset="d")


CLASS = """from rlvr_core.api import ComponentConfig
class It:
    class Config(ComponentConfig):
        size: int = 1
{config}
    def __init__(self, config):
        {body}
    {more} __call__(self, progress): return 1.0
"""


def schedule(body="pass", config="", more="def"):
    return CLASS.format(body=body, config=config, more=more)


@pytest.mark.parametrize("end", ENDS)
def test_what_ends_a_constructor_is_the_components_fault(part, tmp_path, end):
    with pytest.raises(PluginError) as caught:
        part("schedule", schedule(end))
    said = str(caught.value)
    assert "schedule './mine.py:It' cannot be made with its options" in said
    assert f"{tmp_path / 'mine.py'}:7" in said


def test_an_interrupt_stays_one(part):
    with pytest.raises(KeyboardInterrupt):
        part("schedule", schedule("raise KeyboardInterrupt"))


@pytest.mark.parametrize("end", ENDS)
def test_what_ends_an_options_check_is_the_components_fault(part, end):
    config = f"        def model_post_init(self, _):\n            {end}"
    with pytest.raises(PluginError, match=r"'./mine.py:It' failed to check its options"):
        part("schedule", schedule(config=config))


def test_a_method_that_nobody_awaits_is_none(part):
    with pytest.raises(ConfigError, match=r"has no method __call__(.|\n)*none of it is async"):
        part("schedule", schedule(more="async def"))


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("verifier", "text, answer"),
        ("verifier", "prompts, completions"),
        ("advantage", "step"),
        ("loss", "batch, normalizer"),
        ("schedule", "progress"),
        ("dataset", ""),
    ],
)
@pytest.mark.parametrize("body", ["return 1.0", "yield 1.0"])
def test_a_coroutine_is_no_function(part, tmp_path, kind, parameters, body):
    with pytest.raises(ConfigError, match="coroutine") as caught:
        part(kind, f"async def It({parameters}):\n    {body}\n")
    assert f"{tmp_path / 'mine.py'}:1" in str(caught.value)


# -- rewards and data ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "score", "passed"),
    [
        ("np.bool_(True)", 1.0, True),
        ("np.bool_(False)", 0.0, False),
        ("True", 1.0, True),
        ("np.float32(0.5)", 0.5, None),
        ("2", 2.0, None),
    ],
)
def test_a_reward_is_any_kind_of_number(part, given, score, passed):
    verifier = part("verifier", f"import numpy as np\ndef It(text): return {given}\n")
    verdict = verifier.verify(problem(), Completion.from_text("x"))
    assert (float(verdict.score), verdict.passed) == (score, passed)


@pytest.mark.parametrize(
    "given", ["np.array([0.5, 1.0])", "torch.tensor([0.5, 1.0])", "(x for x in (0.5, 1.0))"]
)
def test_the_scores_of_a_group_are_anything_that_has_them_in_order(part, given):
    source = f"import numpy as np, torch\ndef It(prompts, completions): return {given}\n"
    verdicts = part("verifier", source).verify_group(problem(), [Completion.from_text("x")] * 2)
    assert [float(one.score) for one in verdicts] == [0.5, 1.0]


@pytest.mark.parametrize("given", ["{0: 1.0, 1: 1.0}", "'ab'", "b'ab'", "0.5", "None"])
def test_what_is_no_list_of_scores_is_refused(part, given):
    verifier = part("verifier", f"def It(prompts, completions): return {given}\n")
    with pytest.raises(TypeError, match="not a list of numbers"):
        verifier.verify_group(problem(), [Completion.from_text("x")] * 2)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("return None", "gave a NoneType, not problems"),
        ("yield 'a prompt'", "gave a str, not a problem"),
        ("yield {'answer': 'x'}", "no field 'prompt'"),
        ("yield {'prompt': [{'role': 'user'}]}", "the prompt must be text or a list"),
        ("yield {'prompt': 'x', 'tags': {1, 2}}", "the row is not JSON"),
    ],
)
def test_what_is_no_problem_names_the_functions_file(part, tmp_path, body, said):
    with pytest.raises(ConfigError) as caught:
        list(part("dataset", f"def It():\n    {body}\n").load())
    assert said in str(caught.value)
    assert str(tmp_path / "mine.py") in str(caught.value)


def test_a_check_that_fails_says_where_it_raised():
    def check(one):
        raise KeyError("boom")

    with pytest.raises(ConfigError) as caught:
        check_problems([problem()], check)
    line = check.__code__.co_firstlineno + 1
    assert f'File "{__file__}", line {line}' in str(caught.value)


# -- what learns ---------------------------------------------------------------------------------


def judged(n=2):
    return JudgedStep((), np.zeros(n, dtype=int), np.arange(n) + 0.0, np.zeros((n, 1)), (1.0,))


class Gives:
    """An estimator that gives what it is told to."""

    reports = (Metric("advantage/known", "A number.", "1"),)
    traits = AdvantageTraits()

    def __init__(self, advantages=(0.5, 1.5), metrics=None):
        self.output = AdvantageOutput(advantages, {} if metrics is None else metrics)

    def __call__(self, step):
        return self.output


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([("known", 1.0)], "reports"),
        ({"known": "high"}, "reports"),
        ({"known": None}, "reports"),
        ({"other": 1.0}, "does not declare: advantage/other"),
    ],
)
def test_numbers_of_an_estimator_are_declared_numbers_by_name(given, said):
    with pytest.raises(PluginError, match=said) as caught:
        Estimator("mine", Gives(metrics=given)).of(judged())
    assert f"{__file__}:" in str(caught.value)


class Reports:
    reports = (Metric("loss", "Shadows rlvr's.", "1"), Metric("own", "Its own.", "1"))


def test_no_component_reports_rlvrs_own_metrics():
    assert reported(Reports(), {"own": np.float32(0.5)}) == {"own": 0.5}
    with pytest.raises(PluginError, match="reports a metric of rlvr's: loss"):
        reported(Reports(), {"own": 1.0, "loss": 777.0})


@pytest.mark.parametrize("given", [None, [1.0], 7, {"own": "x"}, {"own": torch.ones(2)}])
def test_what_is_no_mapping_of_numbers_is_refused(given):
    with pytest.raises(PluginError, match="Reports reports"):
        reported(Reports(), given)


@pytest.mark.parametrize("share", [None, "half", math.nan, math.inf, -1.0, 1j, torch.ones(2)])
def test_a_share_of_the_learning_rate_is_a_number_of_at_least_0(share):
    class Odd:
        def __call__(self, progress):
            return share

    with pytest.raises(PluginError, match=r"Odd gave .* at progress 0, not a share") as caught:
        learning_rate(TrainSection(steps=2, warmup_steps=0, lr=1.0), Odd(), 0)
    assert f"{__file__}:" in str(caught.value)


class Keeps(torch.optim.SGD):
    def step(self, closure=None):
        for one in self.param_groups[0]["params"]:
            self.state[one]["odd"] = object()


@pytest.mark.parametrize(
    "build_it",
    [
        lambda parameters, lr: None,
        lambda parameters, lr: [torch.optim.SGD([one.tensor for one in parameters], lr)],
        lambda parameters, lr: torch.optim.SGD([torch.nn.Parameter(torch.zeros(3))], lr),
        lambda parameters, lr: torch.optim.SGD([parameters[0].tensor], lr),
    ],
    ids=["nothing", "list", "others", "some"],
)
def test_an_optimizer_is_one_of_all_parameters(build_it):
    with pytest.raises(PluginError, match=r"Builder built a \w+, no torch.optim.Optimizer"):
        optimizer(build_it)


def test_a_state_that_no_checkpoint_holds_is_the_optimizers_fault():
    made = optimizer(lambda parameters, lr: Keeps([one.tensor for one in parameters], lr))
    made.backward(sum(one.sum() for one in made.parameters))
    made.step(0)
    with pytest.raises(PluginError, match=r"Builder keeps <object .* as 'odd'"):
        made.state_tensors()


def optimizer(build_it):
    class Builder:
        def build(self, parameters, lr):
            return build_it(parameters, lr)

    train = TrainSection(steps=2, warmup_steps=0, lr=1.0)
    return Optimizer(torch.nn.Linear(2, 2), train, torch.float32, Builder(), lambda progress: 1.0)


# -- samplers and engines ------------------------------------------------------------------------


class Chooses(SamplerBase):
    """Chooses what it is told to."""

    class Config(SamplerConfig):
        """No options of its own."""

    chosen: object = ()
    where: object = None

    def begin(self, sources):
        self.problems = sources[0].problems

    def choose(self, n_problems, step):
        return self.chosen

    def identity(self):
        return "it"

    def position(self):
        return self.where

    def seek(self, position): ...


def sampler(chosen=(), where=None):
    made = Chooses(Chooses.Config())
    made.chosen, made.where = chosen, where
    made.start([Source("d", (problem("a"), problem("b")))], n=2, prompts_per_step=2, seed=0)
    return made


def forever():
    while True:
        yield problem()


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        ((), "chose none of 2 problems"),
        ([problem()] * 3, "chose more than 2 problems"),
        (forever(), "chose more than 2 problems"),
        (["p1", "p2"], "chose a str, not a Problem"),
    ],
    ids=["none", "more", "forever", "ids"],
)
def test_a_sampler_chooses_as_many_problems_as_it_is_to(chosen, said):
    with pytest.raises(PluginError, match=f"Chooses {said}") as caught:
        sampler(chosen).draw(2, step=0)
    assert f"{__file__}:" in str(caught.value)


def test_a_position_is_json():
    assert sampler(where=[1, "a"]).state_dict()["position"] == [1, "a"]
    with pytest.raises(PluginError, match="Chooses has a state that is no JSON"):
        sampler(where={1, 2}).state_dict()


def generation(ids=(3, 4), logprobs=(-1.0, -2.0), text="ab"):
    return Generation(ids, logprobs, text, "stop", 0)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (None, "gave None for 2 seeds"),
        ((generation(),), "for 2 seeds"),
        ((generation(), None), "gave None, not a Generation"),
        ((generation(), generation(text=None)), "not a Generation with text"),
        ((generation(), generation((3, -4))), "gave the tokens"),
        ((generation(), generation((3, 4.5))), "gave the tokens"),
        ((generation(), generation(("a", "b"))), "gave the tokens"),
        ((generation(), generation(logprobs=(-1.0,))), "with the log-probs"),
        ((generation(), generation(logprobs=None)), "with the log-probs"),
        ((generation(), generation(logprobs=(-1.0, math.nan))), "with the log-probs"),
    ],
)
def test_what_an_engine_gives_is_looked_at(given, said):
    assert said in _fault(given, 2)


# -- whose fault an exception is -----------------------------------------------------------------


def caught(call):
    try:
        call()
    except BaseException as error:
        return error
    raise AssertionError("it raised nothing")


@pytest.mark.parametrize("end", ENDS)
def test_an_exception_in_a_file_names_kind_name_and_line(part, tmp_path, end):
    source = f"class Base:\n    def __call__(self, progress):\n        {end}\nclass It(Base):\n"
    made = part("schedule", source + "    def __init__(self, config): pass\n")
    fault = blame(caught(lambda: made(0.5)))
    assert isinstance(fault, PluginError)
    assert str(fault).startswith("schedule './mine.py:It' failed: ")
    assert f"{tmp_path / 'mine.py'}:3" in str(fault)


def test_a_fault_in_an_inherited_method_is_the_heirs(part, tmp_path):
    source = """from rlvr_core.rollout.samplers.base import SamplerBase, SamplerConfig
class It(SamplerBase):
    class Config(SamplerConfig): pass
    def __init__(self, config): pass
    def begin(self, sources): pass
    choose = identity = position = seek = begin
"""
    fault = blame(caught(lambda: part("sampler", source).refill(0, 0)))
    assert "sampler './mine.py:It' failed: AttributeError" in str(fault)
    assert f"{tmp_path / 'mine.py'}:2" in str(fault)


def test_an_exception_of_rlvr_itself_is_a_bug():
    error = caught(lambda: TrainSection.model_validate(3).steps)
    assert "this is a bug in rlvr" in str(blame(error))
    with pytest.raises(ZeroDivisionError), faults_named():
        raise ZeroDivisionError


def test_what_escapes_a_part_is_raised_as_its_fault(part):
    made = part("schedule", "def It(progress): raise SystemExit(0)\n")
    said = r"schedule './mine.py:It' failed: SystemExit: 0"
    with pytest.raises(PluginError, match=said), faults_named():
        made(0.0)
    with pytest.raises(RunError, match="enough"), faults_named():
        raise RunError("enough")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"rewards": len}, "rewards is a builtin_function_or_method, not a list"),
        ({"rewards": "./mine.py:it"}, "rewards is a str, not a list"),
        ({"set": ["train.steps=3"]}, "set is a list, not a mapping"),
        ({"display": "loud"}, "there is no display 'loud'"),
        ({"display": object()}, "there is no display <object object at"),
        ({"display": print}, "there is no display <built-in function print>"),
    ],
)
def test_arguments_of_train_of_another_type_are_refused(arguments, said):
    with pytest.raises(ConfigError, match=said):
        rlvr_core.train({}, **arguments)


@pytest.mark.parametrize(
    ("model", "arguments", "said"),
    [
        ("model", {"tasks": 3}, "tasks is a int, not a list"),
        ("model", {"tasks": "math/x"}, "tasks is a str, not a list"),
        (None, {}, "model is a NoneType, not a folder"),
    ],
)
def test_arguments_of_evaluate_of_another_type_are_refused(model, arguments, said):
    with pytest.raises(ConfigError, match=said):
        rlvr_core.evaluate(model, **arguments)
