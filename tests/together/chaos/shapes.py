"""Healthy runs of different kinds: changes to the base config, and rows of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.together.chaos.lab import rows, source

ROWS: Mapping[str, Callable[[], list[dict[str, Any]]]] = {
    "few problems": lambda: rows()[:16],
    "given answers": lambda: [row | {"shown": f" [{row['answer']}]"} for row in rows()],
    "curriculum of two phases": lambda: [
        row | {"level": "high" if int(row["answer"]) > 55 else "low"} for row in rows()
    ],
}
"""The data of shapes that have others than ``lab.rows``."""

_HELD_OUT = source() | {"split": {"heldout": 0.1}}
_TWO_PHASES = [
    {"until_step": 3, "tiers": {"low": 1.0}},
    {"tiers": {"low": 0.2, "high": 1.0}},
]

SHAPES: Mapping[str, Mapping[str, Any]] = {
    "base": {},
    "cool": {"sampling": {"temperature": 0.6}},
    "very cold": {
        "sampling": {"temperature": 0.1},
        "sampler": {"use": "shuffle", "with": {"drop_zero_variance": False}},
    },
    "top p and top k": {"sampling": {"temperature": 1.5, "top_p": 0.9, "top_k": 20}},
    "stop string": {"sampling": {"stop": ["]"]}},
    "short answers": {"sampling": {"max_tokens": 11}},
    "masked truncation": {"sampling": {"max_tokens": 12}, "train": {"mask_truncated": True}},
    "pairs": {"sampling": {"n": 2}, "train": {"prompts_per_step": 24}},
    "own forward": {"model": {"forward_paths": []}},
    "vocabulary of 317": {"model": {"path": "../../odd"}},
    "recomputed activations": {"train": {"gradient_checkpointing": "all"}},
    "micro batches": {"train": {"tokens_per_micro_batch": 256}},
    "lora": {"model": {"lora": {"rank": 4, "alpha": 8}}},
    "lora with dropout": {
        "model": {"lora": {"rank": 4, "alpha": 16, "dropout": 0.2}},
        "train": {"num_iterations": 2, "mini_batches": 2, "lr": 3e-3},
    },
    "strong kl": {"loss": {"with": {"beta": 0.2}}},
    "moving reference": {
        "train": {"reference": {"sync_every": 2}},
        "loss": {"with": {"beta": 0.2}},
    },
    "two iterations": {"train": {"num_iterations": 2, "mini_batches": 2, "lr": 3e-3}},
    "truncated importance": {
        "loss": {"with": {"importance_correction": {"mode": "token_truncate", "cap": 2.0}}}
    },
    "dapo": {"loss": {"use": "dapo", "with": {"clip_low": 0.1, "clip_high": 0.5}}},
    "dr grpo": {"loss": {"use": "dr_grpo"}, "train": {"mini_batches": 3}},
    "gspo": {"loss": {"use": "gspo"}, "train": {"num_iterations": 2, "lr": 2e-3}},
    "batch advantages": {"advantage": {"use": "batch"}},
    "given answers": {
        "loss": [
            {"use": "grpo", "with": {"beta": 0.02}},
            {"use": "sft", "weight": 0.3, "with": {"target": "shown", "rows_per_step": 8}},
        ]
    },
    "small lr": {"train": {"lr": 1e-6}},
    "tight norm": {"train": {"tokens_per_micro_batch": 256, "max_grad_norm": 0.2}},
    "cosine": {"train": {"lr_schedule": {"use": "cosine"}}},
    "weight decay": {"train": {"optimizer": {"use": "adamw", "with": {"weight_decay": 0.1}}}},
    "two rewards": {"rewards": [{"use": "auto"}, {"use": "chaos/brief", "weight": 0.1}]},
    "some verdicts are missing": {"data": {"sources": [source(verifier="chaos/patchy")]}},
    "few problems": {},
    "groups read twice": {"sampler": {"use": "shuffle", "with": {"max_reads": 2}}},
    "groups that grow": {
        "sampler": {
            "use": "shuffle",
            "with": {
                "adaptive": {"k_success": 1, "k_failure": 1, "chunk_size": 4, "max_completions": 16}
            },
        }
    },
    "difficulty": {"sampler": {"use": "difficulty"}},
    "curriculum of two phases": {
        "data": {"sources": [source(tags=["level"])]},
        "sampler": {"use": "difficulty", "with": {"tier_by": "level", "phases": _TWO_PHASES}},
    },
    "two turns": {
        "data": {"sources": [source(verifier="env/environment")]},
        "environment": {"use": "chaos/again", "max_turns": 3, "workers": 2},
        "sampling": {"max_tokens": 64},
    },
    "two iterations ahead": {"train": {"num_iterations": 2, "max_staleness": 2}},
    "kept in flight": {"train": {"max_staleness": 2, "in_flight": "keep"}},
    "evaluated while it learns": {
        "data": {"sources": [_HELD_OUT]},
        "sampling": {"temperature": 0.6},
        "eval": {
            "every": 2,
            "tasks": [
                {"use": "core/dataset", "with": {"data": source(), "split": {"heldout": 0.1}}}
            ],
        },
    },
    "many checkpoints": {"checkpoint": {"every": 1, "keep": 9}},
    "resumed": {"checkpoint": {"every": 2}},
    "impatient": {
        "run": {"timeout": 15},
        "verify": {"timeout": 2.0},
        "guards": [{"use": "core/watchdog", "with": {"max_wait": 20}}],
    },
}
