"""What every run of the suite shares: a model that knows a little, data, a plugin, a config."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rlvr_core.testing.lab import install_plugin

OPENINGS = ("it is ", "so ", "well, ", "", "I say ", "now ", "then ", "we get ")
PLUGIN = Path(__file__).with_name("rlvr_chaos.py")


def rows() -> list[dict[str, Any]]:
    """The problems: the successor of each number of two digits."""
    return [
        {"id": f"after-{n}", "question": f"After {n} comes:", "answer": str(n + 1)}
        for n in range(10, 99)
    ]


def demonstration(answer: str, rng: random.Random) -> str:
    """An answer as the model is to give them: right in one of two, in a form of many."""
    number = int(answer) if rng.random() < 0.55 else rng.randrange(10, 100)
    text = f"{rng.choice(OPENINGS)}[{number}]"
    if rng.random() < 0.06:
        text = f"{rng.choice(OPENINGS)}{number}"
    return f" {text} or so and so on and on" if rng.random() < 0.04 else f" {text}"


def make_model(folder: Path, *, steps: int = 500, seed: int = 0) -> Path:
    """Write a model that has seen demonstrations of the problems for some steps."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from rlvr_core.testing.random_model import save_random_model

    save_random_model(folder, seed=seed)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    rng, problems = random.Random(seed), rows()
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, total_steps=steps)
    for _ in range(steps):
        ids, labels = [], []
        for row in rng.choices(problems, k=48):
            prompt = tokenizer(row["question"])["input_ids"]
            answer = tokenizer(demonstration(row["answer"], rng))["input_ids"]
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
    """Install the plugin into a folder, unless it is there, and put that on the path."""
    if not (site / PLUGIN.name).exists():
        site.mkdir(parents=True, exist_ok=True)
        install_plugin(site, "chaos", {PLUGIN.name: PLUGIN.read_text()})
    sys.path[:0] = [str(site)]


def source(**options: Any) -> dict[str, Any]:
    """The data of a run, as the config names them."""
    given = {"path": "data.jsonl", "prompt": "question", "id": "id", "verifier": "chaos/brackets"}
    return {"use": "core/jsonl", "with": given | options}


def base_config(model: Path) -> dict[str, Any]:
    """The base shape: GRPO with a KL term, eight steps of eight groups of eight."""
    return {
        "run": {"name": "chaos", "seed": 1, "timeout": 60},
        "model": {"path": str(model), "dtype": "float32"},
        "data": {"sources": [source()]},
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
        both = isinstance(old, dict) and isinstance(value, dict)
        if both and ("use" not in value or value["use"] == old.get("use")):
            out[key] = merged(old, value)
        else:
            out[key] = value
    return out


def write(folder: Path, config: Mapping[str, Any], data: list[dict[str, Any]]) -> None:
    """Write config and data of a run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(dict(config)))
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in data))
