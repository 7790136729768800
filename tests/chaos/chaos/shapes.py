"""Healthy runs of different shape: changes to the base config, and rows of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chaos import lab

PREFACE = (
    "This is a list of numbers and of what comes after each of them. It was written by hand, one "
    "line after the other, and has been read by nobody since. Some lines are long, most are short. "
)
"""Of a prompt that is far longer than its answer."""


def _of_many_lengths() -> list[dict[str, Any]]:
    begins = ("", "Now. ", "And then this one. ", "Say what is next, please. ")
    return [
        row | {"question": begins[place % 4] + row["question"]}
        for place, row in enumerate(lab.rows())
    ]


def _with_answers_shown() -> list[dict[str, Any]]:
    return [row | {"shown": f" [{row['answer']}]"} for row in lab.rows()]


def _with_levels() -> list[dict[str, Any]]:
    return [row | {"level": "high" if int(row["answer"]) > 55 else "low"} for row in lab.rows()]


def _every_other_with_a_label() -> list[dict[str, Any]]:
    return [
        row | {"question": "[q] " * (place % 2) + row["question"]}
        for place, row in enumerate(lab.rows())
    ]


def _source(**options: Any) -> dict[str, Any]:
    """The base shape's data with other options."""
    given = {"path": "data.jsonl", "prompt": "question", "id": "id", "verifier": "chaos/brackets"}
    return {"sources": [{"use": "core/jsonl", "with": given | options}]}


def _first_rows(name: str, limit: int, **more: Any) -> dict[str, Any]:
    """A data set of the first rows, under a name of its own and without their ids."""
    given = {"path": "data.jsonl", "prompt": "question", "verifier": "chaos/brackets"}
    return {"use": "core/jsonl", "with": {**given, "name": name, "limit": limit}, **more}


def _split(share: float) -> dict[str, Any]:
    """The base shape's data, of which a share is held out."""
    return {"sources": [_ALL | {"split": {"heldout": share}}]}


_ALL = _source()["sources"][0]


def _evaluated(share: float = 0.3, **options: Any) -> dict[str, Any]:
    """A share of the problems is held out and asked, four times each, before every second step."""
    task = {"use": "chaos/drawn", "with": {"data": _ALL, "heldout": share, **options}}
    return {
        "data": _split(share),
        "sampling": {"temperature": 0.8},
        "eval": {"every": 2, "tasks": [task]},
        "checkpoint": {"every": 2, "keep": 9},
    }


_AND_GIVEN_ANSWERS = [
    {"use": "grpo", "with": {"beta": 0.02}},
    {"use": "sft", "weight": 0.3, "with": {"target": "shown", "rows_per_step": 8}},
]

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
    "tight norm": {"train": {"tokens_per_micro_batch": 256, "max_grad_norm": 0.2}},
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
    "very cold": {
        "sampling": {"temperature": 0.1},
        "sampler": {"use": "shuffle", "with": {"drop_zero_variance": False}},
    },
    "k1 stronger than advantages": {
        "sampling": {"n": 2},
        "loss": {"with": {"beta": 1.0, "kl_estimator": "k1"}},
    },
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
    "recomputed activations": {"train": {"gradient_checkpointing": "all"}},
    "groups read twice": {"sampler": {"use": "shuffle", "with": {"max_reads": 2}}},
    "groups read thrice": {"sampler": {"use": "shuffle", "with": {"max_reads": 3}}},
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
    "kept in flight, generation behind": {
        "engine": {"with": {"max_rows": 8}},
        "train": {"max_staleness": 4, "in_flight": "keep", "steps": 12},
    },
    "one problem a step": {"train": {"prompts_per_step": 1}, "sampling": {"n": 6}},
    "five problems, many epochs": {
        "rows": lambda: lab.rows()[:5],
        "train": {"prompts_per_step": 4, "steps": 16},
    },
    "prefix and very short completions": {
        "data": {"prompt": {"prefix": " it is"}},
        "sampling": {"max_tokens": 8},
    },
    "very hot, top p and top k": {"sampling": {"temperature": 1.8, "top_p": 0.9, "top_k": 20}},
    "warm-up to the end": {"train": {"lr": 0.013, "warmup_steps": 7}},
    "weight decay, warm-up, cosine": {
        "train": {
            "optimizer": {
                "use": "adamw",
                "with": {"weight_decay": 0.3, "betas": [0.8, 0.95], "eps": 1e-8},
            },
            "lr_schedule": {"use": "cosine", "with": {"min_lr_ratio": 0.1}},
            "warmup_steps": 3,
        }
    },
    "lora, mini-batches, two iterations": {
        "model": {"lora": {"rank": 2, "alpha": 32}},
        "train": {"num_iterations": 2, "mini_batches": 3, "lr": 5e-3},
        "loss": {"with": {"beta": 0.1}},
    },
    "masked truncation, mini-batches": {
        "sampling": {"max_tokens": 10, "n": 4},
        "train": {"mask_truncated": True, "mini_batches": 4, "prompts_per_step": 16},
    },
    "clipped above and twice": {
        "loss": {"with": {"clip_low": 0.1, "clip_high": 0.3, "delta": 1.5}},
        "train": {"num_iterations": 3, "lr": 4e-3},
    },
    "two data sets": {
        "data": {
            "sources": [
                {
                    "use": "core/jsonl",
                    "with": {
                        "path": "data.jsonl",
                        "name": name,
                        "verifier": "chaos/brackets",
                        **prompt,
                    },
                    **more,
                }
                for name, prompt, more in (
                    ("plain", {"prompt": "question"}, {"weight": 2.0}),
                    (
                        "other",
                        {"template": "{question}", "limit": 30},
                        {"weight": 1.0, "advantage_scale": 0.5},
                    ),
                )
            ]
        },
        "sampler": {"use": "mixture"},
    },
    "several stop strings": {"sampling": {"stop": ["] or", "so]", "]"], "max_tokens": 40}},
    "shaping reward that fades": {
        "rewards": [
            {"use": "auto"},
            {"use": "chaos/brief", "weight": 0.4, "schedule": {"to": 0.0, "steps": 4}},
        ]
    },
    "rewards normalised each": {
        "rewards": [{"use": "auto"}, {"use": "chaos/brief", "weight": -0.5}],
        "advantage": {"use": "group", "with": {"combine": "normalise_then_sum"}},
    },
    "reinforce++": {"advantage": {"use": "reinforce_plus_plus"}, "loss": {"with": {"beta": 0.0}}},
    "many small steps": {
        "sampling": {"n": 3},
        "train": {"prompts_per_step": 3, "steps": 24, "lr": 3e-4},
    },
    "reference renewed each update": {
        "train": {"reference": {"sync_every": 1}, "num_iterations": 2, "mini_batches": 2},
        "loss": {"with": {"beta": 0.5, "kl_estimator": "k2"}},
    },
    "groups read thrice, ahead": {
        "sampler": {"use": "shuffle", "with": {"max_reads": 3}},
        "train": {"max_staleness": 3},
    },
    "lora, ahead": {"model": {"lora": {"rank": 4, "alpha": 8}}, "train": {"max_staleness": 1}},
    "resumed": {"checkpoint": {"every": 2}},
    # the tenth set's: shapes of its faults, then others
    "prompts of many lengths": {"rows": _of_many_lengths},
    "small waves": {"engine": {"with": {"max_rows": 16}}},
    "two turns": {
        "data": _source(verifier="core/environment"),
        "environment": {"use": "chaos/again", "max_turns": 3, "workers": 2},
        "sampling": {"max_tokens": 64},
    },
    "grpo and given answers": {
        "rows": _with_answers_shown,
        "loss": _AND_GIVEN_ANSWERS,
    },
    "some verdicts are missing": {"data": _source(verifier="chaos/patchy")},
    "reinforce++ with a strong kl": {
        "advantage": {"use": "reinforce_plus_plus", "with": {"beta": 1.0}},
        "loss": {"with": {"beta": 0.0}},
        "train": {"lr": 3e-3},
    },
    "entropy steered": {
        "loss": {
            "with": {
                "entropy_bonus": 0.02,
                "entropy_control": {"target": 2.0, "step": 0.005, "max": 0.2},
            }
        }
    },
    "gspo, two iterations": {
        "loss": {"use": "gspo"},
        "train": {"num_iterations": 2, "mini_batches": 2, "lr": 2e-3},
    },
    "difficulty, few problems": {
        "rows": lambda: lab.rows()[:12],
        "sampler": {
            "use": "difficulty",
            "with": {"window": 1, "hard_threshold": 0.45, "easy_threshold": 0.7},
        },
        "train": {"prompts_per_step": 4},
    },
    "stop strings of the data": {"data": _source(stop=["]"])},
    "one pair of answers a step": {
        "sampling": {"n": 2},
        "train": {"prompts_per_step": 1, "steps": 16},
        "sampler": {"use": "shuffle", "with": {"drop_zero_variance": False}},
    },
    "huge lr, norm clipped to little": {"train": {"lr": 0.01, "max_grad_norm": 0.01}},
    "lora of rank one, large alpha": {
        "model": {"lora": {"rank": 1, "alpha": 64}},
        "train": {"lr": 5e-3, "num_iterations": 2},
    },
    "rewards that are nearly always equal, kept": {
        "rewards": [{"use": "chaos/form"}],
        "sampling": {"n": 4},
        "sampler": {"use": "sequential", "with": {"drop_zero_variance": False}},
    },
    "long prompts, short answers": {
        "data": _source(prompt=None, template=PREFACE + "{question}"),
        "rewards": [{"use": "chaos/brief"}],
        "sampling": {"max_tokens": 12},
        "train": {"tokens_per_micro_batch": 400, "lr": 3e-4},
    },
    "vocabulary of 317": {"model": {"path": "../../odd"}},
    "rewards below zero": {
        "rewards": [{"use": "chaos/debt"}, {"use": "chaos/brief", "weight": -0.2}],
        "advantage": {"use": "center"},
    },
    "far ahead, four updates a step": {
        "sampling": {"n": 4},
        "train": {"max_staleness": 6, "num_iterations": 2, "mini_batches": 2},
        "loss": {"with": {"importance_correction": {"mode": "sequence_geo", "cap": 3.0}}},
    },
    "two turns, lora, micro batches": {
        "data": _source(verifier="core/environment"),
        "environment": {"use": "chaos/again", "max_turn_tokens": 20, "workers": 2},
        "sampling": {"max_tokens": 56, "n": 4},
        "model": {"lora": {"rank": 8, "alpha": 8}},
        "train": {"tokens_per_micro_batch": 512, "mini_batches": 2},
    },
    # the eleventh set's: shapes of its faults, then others
    "temperature of two decimals": {"sampling": {"temperature": 0.85}},
    "off-policy mask, far": {
        "loss": {"with": {"off_policy_mask": 0.02}},
        "train": {"num_iterations": 3, "lr": 5e-3},
    },
    "one prompt a step, pairs, two updates": {
        "sampling": {"n": 2},
        "train": {"prompts_per_step": 1, "steps": 20, "num_iterations": 2},
        "sampler": {"use": "sequential", "with": {"drop_zero_variance": False}},
    },
    "huge lr, tight clip, dapo": {
        "loss": {"use": "dapo"},
        "train": {"lr": 0.02, "max_grad_norm": 0.005, "mini_batches": 4},
    },
    "muon, lora": {
        "model": {"lora": {"rank": 4, "alpha": 4}},
        "train": {"optimizer": {"use": "muon"}, "lr": 1e-3},
    },
    "very long prompts, two kinds of reward": {
        "data": _source(prompt=None, template=3 * PREFACE + "{question}"),
        "rewards": [{"use": "chaos/brief"}, {"use": "chaos/debt", "weight": 0.1}],
        "sampling": {"max_tokens": 8, "n": 4},
        "train": {"tokens_per_micro_batch": 1200, "lr": 1e-4},
    },
    "odd vocabulary, micro batches, hot": {
        "model": {"path": "../../odd"},
        "sampling": {"temperature": 1.5, "top_k": 50},
        "train": {"tokens_per_micro_batch": 200, "mini_batches": 2},
    },
    "negative rewards, rloo, ahead": {
        "rewards": [{"use": "chaos/debt"}],
        "loss": {"use": "reinforce"},
        "advantage": {"use": "rloo"},
        "train": {"max_staleness": 2},
    },
    "three rows of data": {
        "rows": lambda: lab.rows()[:3],
        "train": {"prompts_per_step": 3, "steps": 12},
        "sampler": {"use": "shuffle", "with": {"drop_zero_variance": False}},
    },
    "answers of three tokens": {
        "sampling": {"max_tokens": 3, "n": 16},
        "rewards": [{"use": "chaos/brief"}],
    },
    "muon, ahead, four mini-batches": {
        "train": {"optimizer": {"use": "muon"}, "lr": 2e-3, "max_staleness": 4, "mini_batches": 4},
        "sampling": {"n": 4},
    },
    "cold, strong k2, moving reference": {
        "sampling": {"temperature": 0.5},
        "train": {"reference": {"sync_every": 3, "ema": 0.5}},
        "loss": {"with": {"beta": 0.4, "kl_estimator": "k2"}},
    },
    # the thirteenth set's: shapes of its faults, then others
    "evaluated while it learns": {
        "data": _split(0.1),
        "sampling": {"temperature": 0.6},
        "eval": {
            "every": 2,
            "tasks": [
                {
                    "use": "core/dataset",
                    "with": {
                        "data": _source()["sources"][0],
                        "split": {"heldout": 0.1},
                        "max_tokens": 24,
                    },
                }
            ],
        },
    },
    "a third evaluated": _evaluated(),
    "a third evaluated at 0.6": _evaluated(temperature=0.6, n=2),
    "a third evaluated greedily": _evaluated(temperature=0.0, n=1),
    "a third evaluated at 1 with top_p": _evaluated(top_p=0.9, top_k=50),
    "a third evaluated of lora": _evaluated() | {"model": {"lora": {"rank": 4, "alpha": 8}}},
    "a fifth held out": {"data": _split(0.2)},
    "two turns, little room": {
        "data": _source(verifier="core/environment"),
        "environment": {"use": "chaos/again", "max_turns": 3, "workers": 2},
        "sampling": {"max_tokens": 36},
    },
    "grpo and a teacher": {
        "loss": [
            {"use": "grpo", "with": {"beta": 0.02}},
            {"use": "gkd", "weight": 0.5, "with": {"teacher": "../../model", "top_k": 12}},
        ],
        "train": {"mini_batches": 2},
    },
    "taught by itself": {
        "loss": [
            {"use": "grpo", "with": {"beta": 0.02}},
            {"use": "opsd", "weight": 0.3, "with": {"prompt": "It is {answer}. {prompt}"}},
        ],
    },
    "maxrl": {"advantage": {"use": "maxrl"}, "loss": {"use": "reinforce"}},
    "pass at three of eight": {"advantage": {"use": "pass_at_k", "with": {"k": 3}}},
    "each problem twice a step": {
        "rows": lambda: lab.rows()[:4],
        "sampler": {"use": "shuffle", "with": {"drop_zero_variance": False}},
    },
    "vespo, two iterations": {
        "loss": {"use": "vespo"},
        "train": {"num_iterations": 2, "mini_batches": 2, "lr": 2e-3},
    },
    "given answers, cool": {
        "rows": _with_answers_shown,
        "sampling": {"temperature": 0.6},
        "loss": _AND_GIVEN_ANSWERS,
    },
    "lora, moving reference": {
        "model": {"lora": {"rank": 4, "alpha": 8}},
        "train": {"reference": {"sync_every": 2}, "lr": 3e-3},
        "loss": {"with": {"beta": 0.2}},
    },
    "wsd, warm-up, dr grpo, three mini-batches": {
        "loss": {"use": "dr_grpo"},
        "train": {
            "lr_schedule": {"use": "wsd", "with": {"decay": 0.5, "min_lr_ratio": 0.05}},
            "warmup_steps": 2,
            "mini_batches": 3,
            "lr": 3e-3,
        },
    },
    "unbiased pass at two, rewards below zero": {
        "rewards": [{"use": "chaos/debt"}],
        "advantage": {"use": "pass_at_k", "with": {"k": 2, "form": "unbiased"}},
        "sampling": {"n": 5, "temperature": 1.15},
    },
    "luspo by rows, cool, masked truncation, ahead": {
        "loss": {"use": "luspo", "with": {"ratio": "sequence", "beta": 0.01}},
        "sampling": {"temperature": 0.7, "max_tokens": 11},
        "train": {"mask_truncated": True, "max_staleness": 2, "lr": 3e-4},
    },
    "taught by a teacher alone, kept groups": {
        "loss": {"use": "gkd", "with": {"teacher": "../../model", "divergence": "kl"}},
        "sampler": {"use": "sequential", "with": {"drop_zero_variance": False}},
        "sampling": {"n": 3, "temperature": 1.2},
    },
    # the fourteenth set's: shapes of its faults, then others
    "towards the likelihood of success": {"advantage": {"use": "maxrl"}},
    "towards the best of four": {"advantage": {"use": "pass_at_k", "with": {"k": 4}}},
    "sapo, unlike gates, two iterations": {
        "loss": {"use": "sapo", "with": {"tau_pos": 0.5, "tau_neg": 4.0}},
        "train": {"num_iterations": 2, "mini_batches": 2, "lr": 3e-3},
    },
    "cool, and given answers": {
        "rows": _with_answers_shown,
        "sampling": {"temperature": 0.7},
        "loss": _AND_GIVEN_ANSWERS,
    },
    "constant, then down": {"train": {"lr_schedule": {"use": "wsd", "with": {"decay": 0.25}}}},
    "lora, dropout, recomputed activations": {
        "model": {"lora": {"rank": 4, "alpha": 16, "dropout": 0.2}},
        "train": {"gradient_checkpointing": "all"},
    },
    "cool, a share held out and evaluated": {
        "data": {"sources": [_ALL | {"split": {"heldout": 0.2}}]},
        "eval": {
            "tasks": [
                {
                    "use": "core/dataset",
                    "with": {"data": _ALL, "split": {"heldout": 0.2}, "max_tokens": 24},
                }
            ],
            "every": 2,
        },
        "sampling": {"temperature": 0.7},
    },
    "vespo, far ahead, two updates a step": {
        "loss": {"use": "vespo"},
        "sampling": {"n": 4},
        "train": {"max_staleness": 4, "mini_batches": 2},
    },
    "gmpo, hot, as many mini-batches as problems": {
        "loss": {"use": "gmpo"},
        "sampling": {"temperature": 1.4, "n": 6},
        "train": {"mini_batches": 8, "max_grad_norm": 0.02, "lr": 3e-3},
    },
    "two turns, ahead, groups of three": {
        "data": _source(verifier="core/environment"),
        "environment": {"use": "chaos/again", "max_turns": 2, "workers": 2},
        "sampling": {"max_tokens": 64, "n": 3},
        "train": {"max_staleness": 2},
    },
    "groups that grow, read twice, reinforce++": {
        "sampler": {
            "use": "shuffle",
            "with": {
                "max_reads": 2,
                "adaptive": {
                    "k_success": 2,
                    "k_failure": 1,
                    "chunk_size": 3,
                    "max_completions": 12,
                },
            },
        },
        "advantage": {
            "use": "reinforce_plus_plus",
            "with": {"beta": 0.05, "group_baseline": True},
        },
        "loss": {"with": {"beta": 0.0}},
    },
    "missing verdicts, rloo, odd vocabulary": {
        "model": {"path": "../../odd"},
        "data": _source(verifier="chaos/patchy"),
        "loss": {"use": "reinforce"},
        "advantage": {"use": "rloo"},
    },
    "best of two among sixteen, long prompts, stop string": {
        "data": _source(prompt=None, template=PREFACE + "{question}"),
        "rewards": [{"use": "chaos/brief"}],
        "advantage": {"use": "pass_at_k", "with": {"k": 2, "form": "unbiased"}},
        "sampling": {"n": 16, "max_tokens": 16, "stop": ["]"]},
        "train": {"prompts_per_step": 4, "tokens_per_micro_batch": 900},
    },
    "likelihood of success, muon, lora, warm-up and decay": {
        "model": {"lora": {"rank": 8, "alpha": 4}},
        "advantage": {"use": "maxrl"},
        "train": {
            "optimizer": {"use": "muon", "with": {"momentum": 0.8, "weight_decay": 0.1}},
            "lr_schedule": {"use": "wsd", "with": {"decay": 0.5, "min_lr_ratio": 0.2}},
            "warmup_steps": 2,
        },
    },
    "sources by epochs, equal rewards kept": {
        "data": {
            "sources": [
                _first_rows(name, limit, **more)
                for name, limit, more in (
                    ("few", 5, {"order": "sequential", "advantage_scale": 2.0}),
                    ("some", 17, {"count": 9}),
                )
            ]
        },
        "sampler": {"use": "mixture", "with": {"mode": "epoch", "drop_zero_variance": False}},
        "train": {"prompts_per_step": 5, "steps": 10},
        "sampling": {"temperature": 0.4},
    },
    # the fifteenth set's: shapes of its faults, then others
    "cool, with an entropy bonus": {
        "sampling": {"temperature": 0.6},
        "loss": {"with": {"entropy_bonus": 0.02}},
    },
    "two turns and a stop string": {
        "data": _source(verifier="core/environment"),
        "environment": {"use": "chaos/again", "max_turns": 3, "workers": 2},
        "sampling": {"max_tokens": 72, "stop": ["]"]},
    },
    "gmpo, a high rate, many updates": {
        "loss": {"use": "gmpo"},
        "train": {"mini_batches": 4, "num_iterations": 2, "lr": 8e-3},
    },
    "dapo, two problems in many groups, penalty for length": {
        "rows": lambda: lab.rows()[:2],
        "loss": {"use": "dapo", "with": {"clip_low": 0.1, "clip_high": 1.0}},
        "rewards": [
            {"use": "auto"},
            {"use": "core/overlong", "weight": 0.5, "with": {"max_tokens": 24, "buffer": 18}},
        ],
        "train": {"prompts_per_step": 6, "mini_batches": 6},
    },
    "three rewards, one of them without weight, by batch": {
        "rewards": [
            {"use": "auto", "weight": 2.0},
            {"use": "chaos/form", "weight": 0.0},
            {"use": "chaos/brief", "weight": 0.3, "schedule": {"to": -0.3, "steps": 6}},
        ],
        "advantage": {"use": "batch"},
        "sampling": {"n": 5, "temperature": 0.9, "top_p": 0.95},
    },
    "sequence ratios, masked weights, kept in flight": {
        "loss": {
            "with": {
                "ratio": "sequence",
                "clip_low": 0.01,
                "clip_high": 0.02,
                "importance_correction": {"mode": "sequence_mask", "cap": 4.0, "floor": 0.1},
            }
        },
        "train": {"max_staleness": 3, "in_flight": "keep", "mini_batches": 2},
    },
    "entropy steered, cold, lora, half of the tokens": {
        "model": {"lora": {"rank": 3, "alpha": 3, "target_modules": ["o_proj", "down_proj"]}},
        "sampling": {"temperature": 0.5, "n": 6},
        "loss": {
            "with": {
                "beta": 0.0,
                "top_entropy": 0.5,
                "entropy_bonus": 0.01,
                "entropy_control": {"target": 0.4, "step": 0.002, "max": 0.05},
            }
        },
        "train": {"lr": 6e-3},
    },
    "dr grpo by a constant, groups of two to twenty, long prompts": {
        "data": _source(prompt=None, template=PREFACE + "{question}"),
        "loss": {"use": "dr_grpo", "with": {"constant": 7, "beta": 0.05, "kl_estimator": "k2"}},
        "sampler": {
            "use": "sequential",
            "with": {
                "adaptive": {
                    "k_success": 1,
                    "k_failure": 1,
                    "chunk_size": 2,
                    "max_completions": 20,
                }
            },
        },
        "rewards": [{"use": "chaos/form"}],
        "sampling": {"max_tokens": 14},
        "train": {"tokens_per_micro_batch": 700, "lr": 2e-4},
    },
    "two turns, reinforce++ by group, two iterations": {
        "data": _source(verifier="core/environment"),
        "environment": {"use": "chaos/again", "max_turns": 2, "workers": 1},
        "sampling": {"max_tokens": 60, "n": 4, "temperature": 1.1},
        "advantage": {
            "use": "reinforce_plus_plus",
            "with": {"beta": 0.02, "group_baseline": True},
        },
        "loss": {"with": {"beta": 0.0, "delta": 2.0}},
        "train": {"num_iterations": 2, "prompts_per_step": 4},
    },
    "given answers alone, then less and less": {
        "rows": _with_answers_shown,
        "loss": {"use": "sft", "with": {"target": "shown", "rows_per_step": 5}},
        "train": {
            "steps": 10,
            "warmup_steps": 0,
            "lr_schedule": {"use": "linear", "with": {"min_lr_ratio": 0.5}},
            "mini_batches": 2,
        },
    },
    "rloo of two, moving reference each third, muon, warm-up": {
        "sampling": {"n": 2, "temperature": 1.2, "top_k": 12},
        "loss": {"use": "reinforce", "with": {"beta": 0.1, "kl_ratio_corrected": True}},
        "advantage": {"use": "rloo"},
        "train": {
            "prompts_per_step": 12,
            "reference": {"sync_every": 3, "ema": 0.25},
            "optimizer": {"use": "muon", "with": {"iterations": 7}},
            "warmup_steps": 4,
        },
        "sampler": {"use": "shuffle", "with": {"refill": 0.0}},
    },
    # the sixteenth set's: shapes of its faults, then others
    "curriculum of two phases": {
        "rows": _with_levels,
        "data": _source(tags=["level"]),
        "sampler": {
            "use": "difficulty",
            "with": {
                "tier_by": "level",
                "phases": [
                    {"until_step": 3, "tiers": {"low": 1.0}},
                    {"tiers": {"low": 0.2, "high": 1.0}},
                ],
            },
        },
    },
    "two data sets by epochs": {
        "data": {
            "sources": [
                _first_rows(name, limit, weight=1.0) for name, limit in (("short", 6), ("long", 40))
            ]
        },
        "sampler": {"use": "mixture", "with": {"mode": "epoch"}},
    },
    "penalty for length": {
        "rewards": [
            {"use": "auto"},
            {"use": "core/overlong", "weight": 0.5, "with": {"max_tokens": 24, "buffer": 18}},
        ]
    },
    "batch advantages, pairs": {
        "advantage": {"use": "batch"},
        "sampling": {"n": 2},
        "train": {"prompts_per_step": 24},
    },
    "reinforce++ by group": {
        "advantage": {"use": "reinforce_plus_plus", "with": {"group_baseline": True}},
        "loss": {"with": {"beta": 0.0}},
    },
    "dapo, three iterations": {
        "loss": {"use": "dapo", "with": {"clip_low": 0.1, "clip_high": 0.5}},
        "train": {"num_iterations": 3, "mini_batches": 2, "lr": 4e-3},
    },
    "stale, weighed by rows": {
        "sampling": {"n": 4},
        "loss": {"with": {"importance_correction": {"mode": "sequence_truncate", "cap": 1.2}}},
        "train": {"max_staleness": 4, "num_iterations": 2, "mini_batches": 2, "lr": 2e-3},
    },
    "high entropy, micro batches": {
        "loss": {"with": {"top_entropy": 0.2}},
        "train": {"tokens_per_micro_batch": 200},
    },
    "a teacher, cool": {
        "sampling": {"temperature": 0.6},
        "loss": [
            {"use": "grpo", "with": {"beta": 0.02}},
            {"use": "gkd", "weight": 0.5, "with": {"teacher": "../../model", "top_k": 12}},
        ],
    },
    "cispo, three iterations": {
        "loss": {"use": "cispo"},
        "train": {"num_iterations": 3, "mini_batches": 2, "lr": 3e-3},
    },
    "a single step, and a checkpoint of it": {
        "train": {"steps": 1, "prompts_per_step": 30},
        "checkpoint": {"every": 1},
        "sampling": {"n": 3, "temperature": 0.9, "top_k": 9},
    },
    "forty answers to one problem, rloo, lora, four iterations": {
        "rows": lambda: lab.rows()[:7],
        "model": {"lora": {"rank": 2, "alpha": 16, "dropout": 0.3, "target_modules": ["v_proj"]}},
        "sampling": {"n": 40},
        "loss": {"use": "reinforce", "with": {"cap": 2.0, "beta": 0.3, "kl_estimator": "k2"}},
        "advantage": {"use": "rloo"},
        "train": {"prompts_per_step": 1, "num_iterations": 4, "lr": 4e-3},
    },
    "luspo, a penalty alone, a warm-up to the last step": {
        "loss": {"use": "luspo", "with": {"delta": 3.0}},
        "rewards": [{"use": "core/overlong", "with": {"max_tokens": 24, "buffer": 24}}],
        "train": {"warmup_steps": 7, "lr": 2e-3, "lr_schedule": {"use": "cosine"}},
    },
    "two losses on the same completions, and two on given answers": {
        "rows": _with_answers_shown,
        "sampling": {"temperature": 1.25},
        "loss": [
            {"use": "cispo", "with": {"cap": 1.5}},
            {"use": "sapo", "weight": 0.25, "with": {"beta": 0.05}},
            {"use": "sft", "weight": 0.1, "with": {"target": "shown", "rows_per_step": 3}},
            {"use": "sft", "weight": 0.2, "with": {"target": "shown", "rows_per_step": 5}},
        ],
        "train": {"mini_batches": 2, "tokens_per_micro_batch": 300},
    },
    "the longer the better, dr grpo, cold, odd vocabulary, ahead": {
        "model": {"path": "../../odd"},
        "rewards": [{"use": "chaos/brief", "weight": -3.0}],
        "loss": {"use": "dr_grpo", "with": {"constant": 3}},
        "sampling": {"temperature": 0.35, "n": 6},
        "train": {"max_staleness": 1, "max_grad_norm": None, "lr": 2e-4},
    },
    "three phases, problems that are solved, groups that grow": {
        "rows": _with_levels,
        "data": _source(tags=["level"], verifier="chaos/patchy"),
        "sampler": {
            "use": "difficulty",
            "with": {
                "tier_by": "level",
                "solved_after": 1,
                "window": 3,
                "hard": 0.5,
                "phases": [
                    {"until_step": 2, "tiers": {"low": 3.0, "high": 1.0}},
                    {"until_step": 5, "tiers": {"high": 1.0}},
                    {"tiers": {"low": 1.0}},
                ],
                "adaptive": {
                    "k_success": 1,
                    "k_failure": 2,
                    "chunk_size": 5,
                    "max_completions": 15,
                },
            },
        },
        "train": {"prompts_per_step": 5},
    },
    "a checkpoint at each step, two turns, stop string, reference that follows": {
        "data": _source(verifier="core/environment"),
        "environment": {"use": "chaos/again", "max_turns": 2, "max_turn_tokens": 16, "workers": 1},
        "sampling": {"max_tokens": 60, "n": 4, "stop": ["]"], "temperature": 0.8},
        "train": {"prompts_per_step": 6, "reference": {"sync_every": 1, "ema": 0.1}},
        "loss": {"with": {"beta": 0.3}},
        "checkpoint": {"every": 1, "keep": 2},
    },
    "muon without momentum, entropy steered, a quarter of the tokens, read twice": {
        "sampler": {"use": "shuffle", "with": {"max_reads": 2}},
        "train": {
            "optimizer": {"use": "muon", "with": {"momentum": 0.0, "betas": [0.0, 0.9]}},
            "lr_schedule": {"use": "wsd", "with": {"decay": 1.0}},
            "warmup_steps": 0,
        },
        "loss": {
            "with": {
                "beta": 0.0,
                "top_entropy": 0.25,
                "entropy_bonus": 0.004,
                "entropy_control": {"target": 0.8, "step": 0.001, "max": 0.02},
            }
        },
    },
    # the eighteenth set's: shapes of its faults, then others
    "two turns, short ones": {
        "data": _source(verifier="core/environment"),
        "environment": {"use": "chaos/again", "max_turns": 2, "max_turn_tokens": 12, "workers": 2},
        "sampling": {"max_tokens": 64},
    },
    "a budget below the longest rows": {"train": {"tokens_per_micro_batch": 30}},
    "two turns by pairs, muon, a budget below one row, kept groups": {
        "data": _source(verifier="core/environment"),
        "environment": {"use": "chaos/again", "max_turns": 3, "workers": 1},
        "sampling": {"max_tokens": 70, "n": 2},
        "train": {"optimizer": {"use": "muon"}, "tokens_per_micro_batch": 24, "lr": 5e-4},
        "sampler": {"use": "sequential", "with": {"drop_zero_variance": False}},
    },
    "lora beside one matrix alone, half of it dropped, gspo, two iterations": {
        "model": {
            "lora": {"rank": 1, "alpha": 2, "dropout": 0.5, "target_modules": ["k_proj"]},
        },
        "loss": {"use": "gspo", "with": {"beta": 0.05}},
        "train": {"num_iterations": 2, "lr": 8e-3, "gradient_checkpointing": "all"},
    },
    "two tokens to choose from, cold, dr grpo, equal rewards kept": {
        "sampling": {"top_k": 2, "temperature": 0.2, "n": 12},
        "loss": {"use": "dr_grpo", "with": {"constant": 50}},
        "sampler": {"use": "shuffle", "with": {"drop_zero_variance": False}},
        "train": {"prompts_per_step": 4, "warmup_steps": 0},
    },
    "far ahead, aborted in flight, lora, small waves": {
        "model": {"lora": {"rank": 4, "alpha": 8}},
        "engine": {"with": {"max_rows": 2}},
        "train": {"max_staleness": 3, "in_flight": "abort"},
        "sampling": {"n": 4, "temperature": 0.9},
    },
    "answers of two tokens, twenty-four of each, k2": {
        "sampling": {"max_tokens": 2, "n": 24},
        "rewards": [{"use": "chaos/brief"}],
        "loss": {"with": {"beta": 0.2, "kl_estimator": "k2"}},
        "train": {"prompts_per_step": 3, "lr": 2e-3, "mini_batches": 3},
    },
    "three data sets one after the other, one of them a single problem": {
        "data": {
            "sources": [
                _first_rows(name, limit, **more)
                for name, limit, more in (
                    ("single", 1, {"advantage_scale": 3.0}),
                    ("few", 4, {"order": "sequential"}),
                    ("more", 30, {"count": 11, "advantage_scale": 0.25}),
                )
            ]
        },
        "sampler": {"use": "mixture", "with": {"mode": "sequential", "refill": 0.5}},
        "train": {"prompts_per_step": 6, "steps": 9},
        "advantage": {"use": "rloo"},
        "loss": {"use": "reinforce"},
    },
    "evaluated at each step, stop string, reference that follows slowly, checkpoints": {
        "data": _split(0.3),
        "sampling": {"stop": ["]"], "temperature": 1.1},
        "eval": {
            "every": 1,
            "tasks": [
                {
                    "use": "core/dataset",
                    "with": {"data": _ALL, "split": {"heldout": 0.3}, "max_tokens": 10},
                }
            ],
        },
        "train": {"reference": {"sync_every": 1, "ema": 0.05}, "steps": 5},
        "loss": {"with": {"beta": 0.5, "kl_estimator": "k1", "kl_ratio_corrected": True}},
        "checkpoint": {"every": 3, "keep": 1},
    },
    "rewards of opposite weight normalised each, sapo, tiny micro batches, wsd": {
        "rewards": [
            {"use": "auto", "weight": 0.5},
            {"use": "chaos/brief", "weight": -1.0},
            {"use": "chaos/debt", "weight": 0.2, "schedule": {"to": 0.0, "steps": 3}},
        ],
        "advantage": {"use": "group", "with": {"combine": "normalise_then_sum"}},
        "loss": {"use": "sapo"},
        "train": {
            "tokens_per_micro_batch": 64,
            "mini_batches": 2,
            "lr_schedule": {"use": "wsd", "with": {"decay": 0.6}},
            "max_grad_norm": 0.1,
        },
    },
    # the seventeenth set's: shapes of its faults, then others
    "every other prompt has the stop string": {
        "rows": _every_other_with_a_label,
        "sampling": {"stop": ["]"]},
    },
    "two turns, capped each": {
        "data": _source(verifier="core/environment"),
        "environment": {"use": "chaos/again", "max_turns": 3, "max_turn_tokens": 12, "workers": 2},
        "sampling": {"max_tokens": 64},
    },
    "lora, dropout, two iterations": {
        "model": {"lora": {"rank": 4, "alpha": 16, "dropout": 0.2}},
        "train": {"num_iterations": 2, "mini_batches": 2, "lr": 3e-3},
    },
    "a teacher of two tokens": {
        "loss": [
            {"use": "grpo", "with": {"beta": 0.02}},
            {"use": "gkd", "weight": 0.5, "with": {"teacher": "../../model", "top_k": 2}},
        ],
    },
    "two iterations, strong kl": {
        "train": {"num_iterations": 2, "mini_batches": 2, "lr": 3e-3},
        "loss": {"with": {"beta": 0.3}},
    },
    "odd vocabulary, two turns, ahead, groups of five": {
        "model": {"path": "../../odd"},
        "data": _source(verifier="core/environment"),
        "environment": {"use": "chaos/again", "max_turns": 2, "workers": 2, "concurrent": 3},
        "sampling": {"max_tokens": 70, "n": 5, "temperature": 1.1},
        "train": {"max_staleness": 1, "prompts_per_step": 3},
    },
    "sapo and a teacher, muon, three mini-batches, wsd": {
        "loss": [
            {"use": "sapo", "with": {"tau_pos": 2.0, "tau_neg": 0.5}},
            {"use": "gkd", "weight": 0.2, "with": {"teacher": "../../model", "top_k": 3}},
        ],
        "train": {
            "optimizer": {"use": "muon", "with": {"momentum": 0.5}},
            "mini_batches": 3,
            "lr_schedule": {"use": "wsd", "with": {"decay": 0.9, "min_lr_ratio": 0.3}},
        },
    },
    "a warm-up nearly to the end, vespo, hot": {
        "loss": {"use": "vespo", "with": {"k_pos": 0.0, "lambda_neg": 5.0}},
        "sampling": {"temperature": 1.6, "n": 3, "max_tokens": 15},
        "train": {"warmup_steps": 6, "lr": 0.004, "tokens_per_micro_batch": 120},
    },
    "forty updates of two steps, four iterations, hardly any norm": {
        "loss": {"use": "gspo", "with": {"beta": 0.6, "kl_estimator": "k2"}},
        "sampling": {"n": 4},
        "train": {
            "steps": 2,
            "prompts_per_step": 10,
            "mini_batches": 5,
            "num_iterations": 4,
            "max_grad_norm": 0.001,
            "lr": 8e-3,
        },
    },
    "only penalties, three of them, groups of three by a sample's deviation": {
        "rewards": [
            {"use": "chaos/debt", "weight": 0.3},
            {"use": "chaos/form", "weight": -0.4},
            {"use": "core/overlong", "weight": 2.0, "with": {"max_tokens": 20, "buffer": 19}},
        ],
        "advantage": {"use": "group_std_ddof1", "with": {"combine": "normalise_then_sum"}},
        "sampling": {"n": 3, "max_tokens": 13},
        "train": {"mask_truncated": True, "prompts_per_step": 16},
        "data": {"prompt": {"prefix": " "}},
    },
    "two data sets in turn, read twice, cold, lora of one matrix, dapo": {
        "model": {"lora": {"rank": 1, "alpha": 1, "target_modules": ["down_proj"]}},
        "data": {"sources": [_first_rows(name, limit) for name, limit in (("a", 9), ("b", 4))]},
        "sampler": {
            "use": "mixture",
            "with": {"mode": "sequential", "max_reads": 2, "drop_zero_variance": False},
        },
        "loss": {"use": "dapo", "with": {"delta": 1.4}},
        "sampling": {"temperature": 0.45, "n": 7},
        "train": {"prompts_per_step": 5, "steps": 11, "lr": 9e-3},
    },
    "reinforce with k1 corrected, recomputed, micro batches, ahead, by likelihood": {
        "rows": lambda: lab.rows()[::6],
        "loss": {
            "use": "reinforce",
            "with": {"beta": 0.05, "kl_estimator": "k1", "kl_ratio_corrected": True, "cap": 1.1},
        },
        "advantage": {"use": "maxrl"},
        "sampling": {"n": 12},
        "train": {
            "max_staleness": 2,
            "gradient_checkpointing": "all",
            "tokens_per_micro_batch": 333,
            "prompts_per_step": 5,
        },
    },
    "grows by one until it has failed twice, a stop string, an entropy to come down to": {
        "sampler": {
            "use": "sequential",
            "with": {"adaptive": {"k_failure": 2, "chunk_size": 1, "max_completions": 9}},
        },
        "sampling": {"stop": ["]"], "n": 9},
        "advantage": {"use": "center"},
        "loss": {
            "with": {
                "beta": 0.0,
                "entropy_bonus": 0.05,
                "entropy_control": {"target": 0.3, "step": 0.02, "max": 0.05},
            }
        },
        "train": {"warmup_steps": 0, "prompts_per_step": 6},
    },
    # a run of the tests was stopped: of two teachers one has prompts of its own
    "two teachers, one of them with prompts of its own": {
        "loss": [
            {"use": "grpo"},
            {"use": "gkd", "weight": 0.3, "with": {"teacher": "../../model", "top_k": 9}},
            {"use": "opsd", "weight": 0.3, "with": {"prompt": "It is {answer}. {prompt}"}},
        ],
    },
    # the twenty-second set's: shapes of its faults
    "two turns, own forward": {
        "model": {"forward_paths": []},
        "data": _source(verifier="core/environment"),
        "environment": {"use": "chaos/again", "max_turns": 3, "workers": 2},
        "sampling": {"max_tokens": 64},
    },
    "given answers, micro batches": {
        "rows": _with_answers_shown,
        "loss": _AND_GIVEN_ANSWERS,
        "train": {"tokens_per_micro_batch": 128},
    },
    "entropy bonus, micro batches": {
        "loss": {"with": {"entropy_bonus": 0.01}},
        "train": {"tokens_per_micro_batch": 256},
    },
    "pairs, some verdicts are missing, kept": {
        "data": _source(verifier="chaos/patchy"),
        "sampling": {"n": 2},
        "train": {"prompts_per_step": 24},
        "sampler": {"use": "shuffle", "with": {"drop_zero_variance": False}},
    },
    "two rewards, some verdicts are missing": {
        "data": _source(verifier="chaos/patchy"),
        "rewards": [{"use": "auto"}, {"use": "chaos/brief", "weight": 0.3}],
    },
    "two data sets, two verifiers": {
        "data": {
            "sources": [
                _first_rows("by answer", 44),
                {
                    "use": "core/jsonl",
                    "with": {
                        "path": "data.jsonl",
                        "name": "by form",
                        "prompt": "question",
                        "verifier": "chaos/form",
                    },
                },
            ]
        },
    },
    "very hot, all tokens": {"sampling": {"temperature": 2.0}},
    "twelve problems": {"rows": lambda: lab.rows()[:12]},
    "grpo and a teacher, by its own likelihood": {
        "loss": [
            {"use": "grpo", "with": {"beta": 0.02}},
            {
                "use": "gkd",
                "weight": 0.5,
                "with": {"teacher": "../../model", "top_k": 12, "divergence": "kl"},
            },
        ],
    },
    "the best checkpoint is kept": _evaluated()
    | {"checkpoint": {"every": 2, "keep": 1, "keep_best": "chaos/drawn:accuracy"}},
    # the twenty-third set's: shapes of its faults
    "own loss": {"loss": {"use": "chaos/plain"}},
    "own loss, micro batches": {
        "loss": {"use": "chaos/plain"},
        "train": {"tokens_per_micro_batch": 256},
    },
    "own sampler": {"sampler": {"use": "chaos/rounds"}},
    "own sampler, twelve problems": {
        "rows": lambda: lab.rows()[:12],
        "sampler": {"use": "chaos/rounds"},
    },
    "own loss, impatient": {
        "loss": {"use": "chaos/plain"},
        "run": {"timeout": 15},
        "verify": {"timeout": 2.0},
        "guards": {"max_wait": 20},
    },
}
