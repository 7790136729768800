"""Healthy runs of random shape: no guard may disturb one.

Whoever writes a guard thinks of the settings that it was measured with; these come from nobody.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from typing import Any

from chaos import lab

Shape = dict[str, Any]
TEMPERATURES = (0.1, 0.2, 0.5, 0.8, 1.0, 1.0, 1.0, 1.2, 1.5, 2.0)
LOSSES = (
    *("grpo", "dapo", "dr_grpo", "gspo", "cispo"),
    *("sapo", "luspo", "reinforce", "gmpo", "vespo"),
)
ESTIMATORS = ("group", "center", "batch", "rloo", "group_std_ddof1")
CORRECTIONS = ("token_mask", "sequence_truncate", "sequence_geo", "off")


def random_shapes(n: int, seed: int) -> dict[str, Mapping[str, Any]]:
    """``n`` shapes by name, the same for the same seed. A rule of the config may refuse some."""
    rng = random.Random(seed)
    return {f"random {seed} {number}": _shape(rng) for number in range(n)}


def _shape(rng: random.Random) -> Shape:
    shape: Shape = {
        "run": {"seed": rng.randrange(1000)},
        "sampling": _sampling(rng),
        "train": _train(rng),
        "loss": {"with": {}},
    }
    _set_loss(rng, shape)
    _set_rest(rng, shape)
    return shape


def _maybe(rng: random.Random, odds: float, section: Shape, name: str, *values: Any) -> None:
    """Set an option to one of the values, at these odds."""
    if rng.random() < odds:
        section[name] = rng.choice(values)


def _sampling(rng: random.Random) -> Shape:
    found: Shape = {
        "temperature": rng.choice(TEMPERATURES),
        "n": rng.choice((2, 3, 4, 8, 8, 12)),
        "max_tokens": rng.choice((9, 11, 16, 24, 24, 40)),
    }
    _maybe(rng, 0.2, found, "top_p", 0.7, 0.9, 0.95)
    _maybe(rng, 0.15, found, "top_k", 3, 10)
    _maybe(rng, 0.15, found, "stop", ["]"], ["or"], ["] "])
    return found


def _train(rng: random.Random) -> Shape:
    prompts = rng.choice((1, 2, 5, 8, 8, 12))
    found: Shape = {
        "prompts_per_step": prompts,
        "lr": 10 ** rng.uniform(-7, -2.2),
        "warmup_steps": rng.choice((0, 1, 3)),
        "lr_schedule": {"use": rng.choice(("constant", "linear", "cosine", "wsd"))},
    }
    _maybe(rng, 0.3, found, "mini_batches", *{min(prompts, number) for number in (2, 3)})
    _maybe(rng, 0.3, found, "num_iterations", 2)
    _maybe(rng, 0.3, found, "tokens_per_micro_batch", 128, 256, 700)
    _maybe(rng, 0.2, found, "max_grad_norm", None, 0.05, 0.3)
    _maybe(rng, 0.2, found, "mask_truncated", True)
    _maybe(rng, 0.2, found, "gradient_checkpointing", "all")
    adamw = {
        "weight_decay": rng.choice((0.0, 0.01, 0.3)),
        "betas": rng.choice(((0.9, 0.95), (0.8, 0.99), (0.0, 0.9))),
        "eps": rng.choice((1e-8, 1e-5)),
    }
    adamw["betas"] = list(adamw["betas"])
    _maybe(rng, 0.4, found, "optimizer", {"use": "adamw", "with": adamw}, {"use": "muon"})
    return found


def _set_loss(rng: random.Random, shape: Shape) -> None:
    options, train = shape["loss"]["with"], shape["train"]
    options["beta"] = rng.choice((0.0, 0.0, 0.02, 0.2, 1.0))
    _maybe(rng, 0.3, options, "kl_estimator", "k1", "k2", "k3")
    if options["beta"] and rng.random() < 0.3:
        moving = {"sync_every": rng.choice((1, 3)), "ema": rng.choice((1.0, 0.5))}
        train["reference"] = moving
    _maybe(rng, 0.4, shape["loss"], "use", *LOSSES)
    _maybe(rng, 0.15, options, "entropy_bonus", 0.001)
    _maybe(rng, 0.1, options, "top_entropy", 0.3)
    if shape["loss"].get("use") != "vespo":  # which corrects by itself
        mode = {"mode": rng.choice(CORRECTIONS)}
        _maybe(rng, 0.2, options, "importance_correction", mode)


def _set_rest(rng: random.Random, shape: Shape) -> None:
    sampling, train = shape["sampling"], shape["train"]
    _maybe(rng, 0.3, shape, "advantage", *({"use": name} for name in ESTIMATORS))
    if rng.random() < 0.25 and not {"top_p", "top_k"} & sampling.keys():
        updates = train.get("mini_batches", 1) * train.get("num_iterations", 1)
        train["max_staleness"] = max(rng.choice((1, 2)), updates)
    model: Shape = {}
    _maybe(rng, 0.2, model, "lora", *({"rank": 4, "alpha": alpha} for alpha in (1, 8, 32)))
    _maybe(rng, 0.2, model, "forward_paths", [])
    shape["model"] = model
    keep = {"with": {"drop_zero_variance": rng.random() < 0.5}}
    _maybe(rng, 0.3, shape, "sampler", {"use": "shuffle"} | keep, {"use": "sequential"} | keep)
    brief = {"use": "chaos/brief", "weight": rng.choice((-0.5, 0.05, 0.5, 2.0))}
    _maybe(rng, 0.25, shape, "rewards", [{"use": "auto"}, brief])
    _maybe(rng, 0.2, shape, "rows", *(partial(_first_rows, n) for n in (3, 8, 20)))


def _first_rows(n: int) -> list[dict[str, Any]]:
    return lab.rows()[:n]
