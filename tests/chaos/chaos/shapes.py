"""Healthy runs of different shape: changes to the base config, and rows of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chaos import lab

SHAPES: dict[str, Mapping[str, Any]] = {
    "base": {},
    "cool": {"sampling": {"temperature": 0.6}},
    "own forward": {"model": {"forward_paths": []}},
    "few problems": {"rows": lambda: lab.rows()[:16]},
    "strong kl": {"loss": {"with": {"beta": 0.2}}},
    "moving reference": {
        "train": {"reference": {"sync_every": 2}},
        "loss": {"with": {"beta": 0.2}},
    },
    "two iterations": {"train": {"num_iterations": 2, "mini_batches": 2, "lr": 3e-3}},
    "micro batches": {"train": {"tokens_per_micro_batch": 256}},
    "truncated importance": {
        "loss": {"with": {"importance_correction": {"mode": "token_truncate", "cap": 2.0}}}
    },
    "lora": {"model": {"lora": {"rank": 4, "alpha": 8}}},
    "short answers": {"sampling": {"max_tokens": 11}},
    "small lr": {"train": {"lr": 1e-6}},
    "two rewards": {"rewards": [{"use": "auto"}, {"use": "chaos/brief", "weight": 0.1}]},
    "impatient": {"run": {"timeout": 15}, "verify": {"timeout": 2.0}, "guards": {"max_wait": 20}},
    "cosine": {"train": {"lr_schedule": {"use": "cosine"}}},
    "many checkpoints": {"checkpoint": {"every": 1, "keep": 9}},
    # shapes in which no fault is put: a guard that disturbs one of them is wrong
    "grpo without kl": {"loss": {"with": {"beta": 0.0}}},
    "dapo": {"loss": {"use": "dapo"}},
    "dr grpo": {"loss": {"use": "dr_grpo"}},
    "gspo": {"loss": {"use": "gspo"}},
    "cispo": {"loss": {"use": "cispo"}},
    "sapo": {"loss": {"use": "sapo"}},
    "luspo": {"loss": {"use": "luspo"}, "train": {"lr": 3e-4}},
    "reinforce, rloo": {"loss": {"use": "reinforce"}, "advantage": {"use": "rloo"}},
    "gmpo": {"loss": {"use": "gmpo"}},
    "vespo": {"loss": {"use": "vespo"}},
    "batch advantages": {"advantage": {"use": "batch"}},
    "k1": {"loss": {"with": {"beta": 0.1, "kl_estimator": "k1", "kl_ratio_corrected": True}}},
    "k2": {"loss": {"with": {"beta": 0.1, "kl_estimator": "k2"}}},
    "ema reference": {
        "train": {"reference": {"sync_every": 1, "ema": 0.3}},
        "loss": {"with": {"beta": 0.1}},
    },
    "pairs": {"sampling": {"n": 2}, "train": {"prompts_per_step": 24}},
    "large groups": {"sampling": {"n": 32}, "train": {"prompts_per_step": 3}},
    "hot": {"sampling": {"temperature": 1.3}},
    "cold": {"sampling": {"temperature": 0.3}},
    "top p": {"sampling": {"top_p": 0.8}},
    "top k": {"sampling": {"top_k": 4, "temperature": 0.8}},
    "stop string": {"sampling": {"stop": ["]"]}},
    "masked truncation": {"sampling": {"max_tokens": 12}, "train": {"mask_truncated": True}},
    "entropy bonus": {"loss": {"with": {"entropy_bonus": 0.003}}},
    "tokens of high entropy": {"loss": {"with": {"top_entropy": 0.2}}},
    "off-policy mask": {"loss": {"with": {"off_policy_mask": 0.5}}, "train": {"num_iterations": 2}},
    "muon": {"train": {"optimizer": {"use": "muon"}, "lr": 3e-3}},
    "no clipping of the norm": {"train": {"max_grad_norm": None}},
    "linear warm-up and decay": {"train": {"lr_schedule": {"use": "linear"}, "warmup_steps": 6}},
    "tiny lr": {"train": {"lr": 1e-7}},
    "high lr": {"train": {"lr": 6e-3}},
    "weight decay": {"train": {"optimizer": {"use": "adamw", "with": {"weight_decay": 0.1}}}},
    "lora without kl": {
        "model": {
            "lora": {"rank": 8, "alpha": 16, "dropout": 0.1, "target_modules": ["q_proj", "v_proj"]}
        },
        "loss": {"with": {"beta": 0.0}},
    },
    "recomputed activations": {"train": {"gradient_checkpointing": True}},
    "groups read twice": {"sampler": {"use": "shuffle", "with": {"max_reads": 2}}},
    "groups that grow": {
        "sampler": {
            "use": "shuffle",
            "with": {
                "adaptive": {"k_success": 1, "k_failure": 1, "chunk_size": 4, "max_completions": 16}
            },
        }
    },
    "equal rewards kept": {"sampler": {"use": "shuffle", "with": {"drop_zero_variance": False}}},
    "in order": {"sampler": {"use": "sequential"}},
    "difficulty": {"sampler": {"use": "difficulty"}},
    "prefix": {"data": {"prompt": {"prefix": " "}}},
    "two iterations ahead": {"train": {"num_iterations": 2, "max_staleness": 2}},
    "kept in flight": {"train": {"max_staleness": 2, "in_flight": "keep"}},
    "resumed": {"checkpoint": {"every": 2}},
}
