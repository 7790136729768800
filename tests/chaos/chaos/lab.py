"""What every run of the suite shares: a model that knows a little, data, a verifier, a config."""

from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rlvr_core.testing.lab import install_plugin

OPENINGS = ("it is ", "so ", "well, ", "", "I say ", "now ", "then ", "we get ")
VERIFIER = '''
"""A verifier as users write them: finds the answer, judges it, knows a response that is right."""

import random
import re
import time
from rlvr_core.api import (
    ComponentConfig, Done, EnvironmentTraits, LossOutput, LossTraits, Message, NoConfig,
    Observation, SamplerBase, SamplerConfig, SamplingParams, Verdict, hookimpl
)


@hookimpl
def register_verifiers(registrar):
    registrar.add("brackets", "rlvr_chaos:Brackets", summary="The one number in brackets.")
    registrar.add("brief", "rlvr_chaos:Brief", summary="Short answers.")
    registrar.add("form", "rlvr_chaos:Form", summary="A number in brackets, whichever.")
    registrar.add("debt", "rlvr_chaos:Debt", summary="0 for the answer, less the further off.")
    registrar.add("patchy", "rlvr_chaos:Patchy", summary="Like brackets; some it cannot judge.")


@hookimpl
def register_eval_tasks(registrar):
    registrar.add("drawn", "rlvr_chaos:Drawn", summary="A data set, asked several times.")


@hookimpl
def register_environments(registrar):
    registrar.add("again", "rlvr_chaos:Again", summary="Asks a second time.")


@hookimpl
def register_losses(registrar):
    registrar.add("plain", "rlvr_chaos:Plain", summary="A clipped policy gradient over tokens.")


@hookimpl
def register_samplers(registrar):
    registrar.add("rounds", "rlvr_chaos:Rounds", summary="All problems once a round.")


def found(text):
    """The number in brackets; None unless there is exactly one."""
    numbers = re.findall(r"\\[(-?\\d+)\\]", text)
    return numbers[0] if len(numbers) == 1 else None


class Brackets:
    """Passes a completion with exactly one number in brackets, the answer."""

    def __init__(self, config: NoConfig) -> None:
        pass

    def gold(self, problem):
        return f"it is [{problem.spec['answer']}]"

    def verify(self, problem, completion):
        answer = found(completion.text)
        passed = answer is not None and int(answer) == int(problem.spec["answer"])
        parts = {"extracted": float(answer is not None)}
        return Verdict(float(passed), passed=passed, parts=parts, extracted=answer)


class Brief:
    """The shorter, the better."""

    def __init__(self, config: NoConfig) -> None:
        pass

    def verify(self, problem, completion):
        return Verdict(max(0.0, 1 - len(completion.text) / 16))


class Form:
    """Passes a completion with exactly one number in brackets, whichever: it knows no gold."""

    def __init__(self, config: NoConfig) -> None:
        pass

    def verify(self, problem, completion):
        passed = found(completion.text) is not None
        return Verdict(float(passed), passed=passed)


class Debt(Brackets):
    """0 for the answer, down to -3 for what is far from it or cannot be read."""

    def verify(self, problem, completion):
        answer = found(completion.text)
        off = 30 if answer is None else abs(int(answer) - int(problem.spec["answer"]))
        return Verdict(-min(off, 30) / 10, passed=off == 0, extracted=answer)


class Patchy(Brackets):
    """Judges as Brackets does, but not a completion that begins with a phrase of its list."""

    def verify(self, problem, completion):
        if completion.text.startswith((" so", " well", " I say")):
            return Verdict(None, status="unscorable", detail="not judged")
        return super().verify(problem, completion)


class Drawn:
    """The problems of core/dataset, sampled as its options say."""

    class Config(ComponentConfig):
        data: dict
        heldout: float = 0.3
        n: int = 4
        temperature: float = 1.0
        top_p: float = 1.0
        top_k: int = 0
        max_tokens: int = 24

    def __init__(self, config):
        from rlvr_core.builtin.evals.dataset_task import DatasetTask

        given = {"data": config.data, "split": {"heldout": config.heldout}}
        self.task = DatasetTask(DatasetTask.Config.model_validate(given))
        self.n = config.n
        self.sampling = SamplingParams(
            config.temperature, config.top_p, config.top_k, config.max_tokens
        )

    def problems(self):
        return self.task.problems()

    def score(self, groups):
        return self.task.score(groups)


class Again:
    """Asks a second question, by its seed, whatever was answered; either answer counts half."""

    traits = EnvironmentTraits(deterministic=True)

    def __init__(self, config: NoConfig) -> None:
        pass

    def start(self, problem, seed):
        return {"next": 10 + seed % 89, "answer": str(problem.spec["answer"]), "right": []}

    def step(self, state, reply):
        state["right"].append(found(reply.text) == state["answer"])
        if len(state["right"]) > 1:
            return Done(Verdict(sum(state["right"]) / 2, passed=any(state["right"])))
        state["answer"] = str(state["next"] + 1)
        return Observation((Message("user", f"After {state['next']} comes:"),))


class Plain:
    """A clipped policy gradient, the mean over all tokens of a step, as users write it."""

    traits = LossTraits(advantage="group")

    def __init__(self, config: NoConfig) -> None:
        pass

    def scale(self, batch, normalizer):
        return normalizer.world_size / max(1, normalizer.tokens)

    def __call__(self, batch, normalizer):
        advantage_B1 = batch.advantage_B[:, None]
        ratio_BT = (batch.logp_BT - batch.old_logp_BT).exp()
        clipped_BT = ratio_BT.clamp(0.8, 1.2)
        gain_BT = (ratio_BT * advantage_B1).minimum(clipped_BT * advantage_B1)
        total = -gain_BT.masked_fill(~batch.mask_BT, 0.0).sum()
        return LossOutput(total * self.scale(batch, normalizer), {}, {})


class Rounds(SamplerBase):
    """All problems once a round, each round in another order."""

    class Config(SamplerConfig):
        pass

    def begin(self, sources):
        self.problems = [one for source in sources for one in source.problems]
        self.round = self.place = 0

    def order(self):
        places = list(range(len(self.problems)))
        random.Random(f"{self.seed} {self.round}").shuffle(places)
        return places

    def choose(self, n_problems, step):
        for _ in range(n_problems):
            order = self.order()
            if self.place == len(order):
                self.round, self.place = self.round + 1, 0
                order = self.order()
            self.place += 1
            yield self.problems[order[self.place - 1]]

    def identity(self):
        return sorted(one.id for one in self.problems)

    def position(self):
        return [self.round, self.place]

    def seek(self, position):
        self.round, self.place = position
'''


def rows() -> list[dict[str, Any]]:
    """The problems: the successor of each number of two digits."""
    return [
        {"id": f"after-{n}", "question": f"After {n} comes:", "answer": str(n + 1)}
        for n in range(10, 99)
    ]


def demonstration(question: str, answer: str, rng: random.Random) -> str:
    """An answer as the model is to give them: right in one of two, in a form of many."""
    number = int(answer) if rng.random() < 0.55 else rng.randrange(10, 100)
    text = f"{rng.choice(OPENINGS)}[{number}]"
    if rng.random() < 0.06:
        text = f"{rng.choice(OPENINGS)}{number}"
    return f" {text} or so and so on and on" if rng.random() < 0.04 else f" {text}"


def make_model(folder: Path, *, steps: int = 500, seed: int = 0, **changes: Any) -> Path:
    """Write a model that has seen demonstrations of the problems for some steps."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from rlvr_core.testing.random_model import save_random_model

    save_random_model(folder, seed=seed, **changes)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    rng, problems = random.Random(seed), rows()
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, total_steps=steps)
    for _ in range(steps):
        ids, labels = [], []
        for row in rng.choices(problems, k=48):
            prompt = tokenizer(row["question"])["input_ids"]
            answer = tokenizer(demonstration(row["question"], row["answer"], rng))["input_ids"]
            answer = [*answer, tokenizer.eos_token_id]
            pad = 60 - len(prompt) - len(answer)
            ids.append([*prompt, *answer, *[0] * pad])
            labels.append([*[-100] * len(prompt), *answer, *[-100] * pad])
        width = max(sum(1 for label in line if label != -100) for line in labels) + 20
        loss = model(
            input_ids=torch.tensor(ids)[:, :width], labels=torch.tensor(labels)[:, :width]
        ).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    model.save_pretrained(folder)
    return folder


def widen(model: Path, folder: Path, vocabulary: int) -> None:
    """Write a model whose embedding has rows that its tokenizer has no tokens for."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    wide = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    known = wide.config.vocab_size
    wide.resize_token_embeddings(vocabulary, mean_resizing=False)
    with torch.no_grad():
        wide.get_input_embeddings().weight[known:] = 0.0
    wide.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)


def install(site: Path) -> None:
    """Install the verifiers' plugin into a folder, and put that on the path."""
    install_plugin(site, "chaos", {"rlvr_chaos.py": VERIFIER})
    sys.path.insert(0, str(site))


def base_config(model: Path) -> dict[str, Any]:
    """The base shape: GRPO with a KL term, eight steps of eight groups of eight."""
    return {
        "run": {"name": "chaos", "seed": 1, "timeout": 60},
        "model": {"path": str(model), "dtype": "float32"},
        "data": {
            "sources": [
                {
                    "use": "core/jsonl",
                    "with": {
                        "path": "data.jsonl",
                        "prompt": "question",
                        "id": "id",
                        "verifier": "chaos/brackets",
                    },
                }
            ]
        },
        "sampling": {"n": 8, "max_tokens": 24},
        "engine": {"use": "transformers"},
        "loss": {"use": "grpo", "with": {"beta": 0.02}},
        "train": {"steps": 8, "prompts_per_step": 8, "lr": 1e-3, "warmup_steps": 1},
        "verify": {"workers": 2},
        "checkpoint": {"every": 0},
    }


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Lay changes over a config; a component of another name loses the options of the old one."""
    out = dict(base)
    for key, value in changes.items():
        old = out.get(key)
        if isinstance(old, dict) and isinstance(value, dict) and not _another(old, value):
            out[key] = merged(old, value)
        else:
            out[key] = value
    return out


def _another(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    return "use" in new and new["use"] != old.get("use")


def write(folder: Path, config: Mapping[str, Any], data: list[dict[str, Any]]) -> None:
    """Write config and data of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(config)))
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data))


NUMBER = re.compile(r"-?\d[\d.,e+-]*%?")
