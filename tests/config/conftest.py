import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlvr_core.cli.main import main
from rlvr_core.plugins.host import load_host

PLUGIN = """
from rlvr_core.api import hookimpl

@hookimpl
def register_datasets(registrar):
    registrar.add("sums", "rlvr_toy_parts:Sums", summary="Sums.")

@hookimpl
def register_verifiers(registrar):
    registrar.add("exactly", "rlvr_toy_parts:Exactly", summary="Equal.")
    registrar.add("plain", "rlvr_toy_parts:Plain", summary="Takes no options.")
    registrar.add("gone", "rlvr_toy_nowhere:Gone", summary="Its module is missing.")
    registrar.add("odd", "rlvr_toy_parts:Odd", summary="Its Config is no model.")

@hookimpl
def register_samplers(registrar):
    registrar.add("steady", "rlvr_toy_parts:Steady", summary="In order.")

@hookimpl
def register_losses(registrar):
    registrar.add("relative", "rlvr_toy_parts:Relative", summary="Compares.")
    registrar.add("single", "rlvr_toy_parts:Single", summary="Does not compare.")

@hookimpl
def register_eval_tasks(registrar):
    registrar.add("sums-test", "rlvr_toy_parts:Sums", summary="Sums, held out.")

@hookimpl
def register_guards(registrar):
    registrar.add("watch", "rlvr_toy_parts:Plain", summary="Watches.")
"""

PARTS = """
from pathlib import Path
from typing import Annotated, Literal
from pydantic import Field, model_validator
from rlvr_core.api import ComponentConfig
from rlvr_core.api import LossTraits

class Part:
    def __init__(self, config):
        self.config = config

class Plain:
    def __init__(self, config):
        self.config = config

class Range(ComponentConfig):
    low: int = 0
    high: int = 9

class Sums(Part):
    class Config(ComponentConfig):
        '''Options of the sums.'''
        split: Literal["train", "test"] = "train"
        '''Which part.'''
        levels: tuple[int, ...] = (1, 2)
        path: Path | None = None
        numbers: Range = Range()
        note: str = ""
        token: str | None = None

class Exactly(Part):
    class Config(ComponentConfig):
        tolerance: Annotated[float, Field(ge=0)] = 0.0
        '''Largest difference.'''
        mode: Literal["strict", "loose"] | Range = "strict"
        strip: bool = True

        @model_validator(mode="after")
        def _sensible(self):
            if self.tolerance > 1 and self.mode == "strict":
                raise ValueError("a tolerance above 1 is not strict")
            return self

class Odd(Part):
    Config = dict

class Steady(Part):
    class Config(ComponentConfig):
        window: Annotated[int, Field(gt=0)] = 4

class Relative(Part):
    traits = LossTraits(advantage="group")
    class Config(ComponentConfig):
        beta: float = 0.0
        clip: float

class Single(Part):
    traits = LossTraits()
    class Config(ComponentConfig):
        beta: float = 0.5
"""

RUN = """\
model: {path: models/tiny}
data:
  sources:
    - {use: toy/sums, with: {split: test}}
sampler: steady
engine: auto
loss: {use: toy/single}
rewards:
  - auto
  - {use: exactly, weight: 0.5}
train: {steps: 100, lr: 1e-6, prompts_per_step: 4}
"""


@pytest.fixture(scope="session")
def toy_folder(installed_plugin):
    """A folder that, put on the path, is an installed plugin called toy."""
    return installed_plugin("toy", {"rlvr_toy.py": PLUGIN, "rlvr_toy_parts.py": PARTS})


@pytest.fixture(scope="module")
def host(toy_folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(toy_folder)
        yield load_host({})


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write files in an empty working directory; gives back the name of the first."""
    monkeypatch.chdir(tmp_path)

    def put(text, name="run.yaml"):
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(textwrap.dedent(text), encoding="utf-8")
        return name

    return put


@pytest.fixture
def run_text():
    return RUN


@pytest.fixture
def run_file(write):
    return write(RUN)


@pytest.fixture
def rlvr(toy_folder, monkeypatch, capsys):
    """Call ``rlvr`` with the toy plugin installed."""
    monkeypatch.syspath_prepend(toy_folder)
    monkeypatch.setenv("NO_COLOR", "1")

    def call(*words):
        code = main(list(words))
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=out, stderr=err)

    return call
