"""The sets of faults: who wrote each, and what was found before anybody mended a guard for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

F32, BF16 = "float32", "bfloat16"


@dataclass(frozen=True, slots=True)
class FaultSet:
    """One set of faults.

    Attributes:
        about: What it is about, and by whom if not by an author who had not read the guards.
        unread: Of an engine and a precision, the runs that were found by the right name when the
            set was first measured, and all runs. Empty where the author knew the guards.
        after: What was added to the guards afterwards.
    """

    about: str
    unread: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    after: str = ""


def _in_process(
    float32: tuple[int, int], bfloat16: tuple[int, int]
) -> dict[tuple[str, str], tuple[int, int]]:
    return {("in process", F32): float32, ("in process", BF16): bfloat16}


SETS: dict[int, FaultSet] = {
    1: FaultSet(
        "all classes, written before the guards existed",
        _in_process((57, 210), (35, 153)),
        "nearly all guards of a step, and the preflight",
    ),
    2: FaultSet(
        "all classes",
        _in_process((68, 98), (66, 96)),
        "wider bands of `parity` and `kl` at low temperatures, where healthy runs had been stopped",
    ),
    3: FaultSet(
        "partial, late or conditional faults: one of two sources, the last row, from step 3 on",
        _in_process((73, 105), (71, 105)),
        "`prompts`, `completions`, `draws`, `canaries`, `references`; `seeds` by the exact stream",
    ),
    4: FaultSet(
        "all classes; the figures have runs in a child, too", _in_process((51, 55), (48, 55))
    ),
    5: FaultSet(
        "all classes; the figures have runs in a child, too", _in_process((58, 63), (55, 63))
    ),
    6: FaultSet("all classes, by the author of set 5", _in_process((27, 28), (26, 28))),
    7: FaultSet("bugs that other frameworks had", _in_process((25, 28), (25, 28))),
    8: FaultSet("bugs that other frameworks had", _in_process((28, 31), (27, 31))),
    9: FaultSet("bugs that other frameworks had", _in_process((26, 30), (26, 30))),
    10: FaultSet(
        "all classes",
        _in_process((29, 37), (28, 36)),
        "draws of `core/difficulty`, REINFORCE++ computed again, steered entropy bonuses, masks of "
        "conversations, buffers of engines",
    ),
    11: FaultSet(
        "all classes; measured in bfloat16 alone",
        {("in process", BF16): (38, 44)},
        "references that share tensors with the policy, seeds of later turns, observations, the "
        "guard `data`",
    ),
    12: FaultSet(
        "loading, and reported figures; by one who mends the guards",
        after="the check of a policy's files",
    ),
    13: FaultSet(
        "all classes",
        _in_process((38, 42), (36, 41)),
        "edges of top-k and top-p, iterations that are left out, dropout that repeats, "
        "conversations that are played again",
    ),
    14: FaultSet(
        "all classes",
        _in_process((34, 38), (33, 36)),
        "dropout of a recomputed pass, references of later updates, texts of recorded prompts",
    ),
    15: FaultSet(
        "all classes",
        _in_process((41, 45), (39, 44)),
        "teachers that are the policy, denominators of given answers",
    ),
    16: FaultSet(
        "all classes",
        _in_process((33, 39), (33, 39)),
        "options of REINFORCE++ and of the length penalty, the choice by entropy, adapters that do "
        "not begin at 0, options of the library's optimizer",
    ),
    17: FaultSet(
        "all classes",
        _in_process((37, 42), (35, 39)),
        "the trainer's precision against the config, passes with dropout and no gradient, a "
        "narrower band of k3 in float32",
    ),
    18: FaultSet(
        "all classes, written without sight of set 17",
        _in_process((29, 36), (26, 35)),
        "rounded log-probs, the scale of dropout, versions in records, references that move within "
        "a step, old log-probs of rows that are read again",
    ),
    19: FaultSet("like mutants that no guard had stopped; by one who mends the guards"),
    20: FaultSet(
        "evaluations, late tokens, weights of rows, accounts, checkpoints",
        _in_process((47, 55), (45, 54)) | {("child", F32): (18, 19), ("child", BF16): (15, 18)},
        "draws of evaluations, log-probs by depth, the share of a row, ledgers",
    ),
    21: FaultSet(
        "evaluations alone, in five kinds of run: 14 of 100 were found, all in a child",
        after="the checks of evaluations",
    ),
    22: FaultSet(
        "bugs that were reported of TRL, verl, NeMo-RL, prime-rl, OpenRLHF and others",
        _in_process((34, 36), (33, 36))
        | {("two processes", F32): (6, 8), ("two processes", BF16): (6, 7)}
        | {("child", F32): (27, 31), ("child", BF16): (27, 31)}
        | {("vllm", F32): (23, 24), ("vllm", BF16): (24, 25)},
        "whose a verdict is, the factor for the number of processes, dropped groups ahead of "
        "training, the best value of a checkpoint",
    ),
    23: FaultSet(
        "ordinary faults, ten of them in a user's own loss, sampler, environment or verifier",
        _in_process((31, 40), (30, 39))
        | {("two processes", F32): (6, 7), ("two processes", BF16): (6, 7)}
        | {("child", F32): (24, 34), ("child", BF16): (24, 34)},
        "what every loss promises, each row of an embedding, copies of a plugin's sampler, "
        "verifiers without a score, rows that became wrong prompts",
    ),
    24: FaultSet(
        "changes of the code: refactorings, speed-ups, merges that lost a line",
        _in_process((37, 41), (34, 41)),
        "factors of advantages against the config, plain passes that take no casts of a region",
    ),
    25: FaultSet(
        "the classes of the first set, by two authors who knew those and no guard",
        _in_process((43, 48), (40, 47))
        | {("child", F32): (38, 43), ("child", BF16): (36, 42)}
        | {("vllm", F32): (32, 37), ("vllm", BF16): (29, 36)},
        "names of samplers that do not sample and of weights that are put back, templates without "
        "a placeholder, digits that a scan has read as letters",
    ),
}
