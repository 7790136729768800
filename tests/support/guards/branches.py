"""Steps over conversations that branch, which guards watch."""

from dataclasses import replace

import torch

from rlvr_core.api import Completion, Group, GroupsScored, Judged, Problem, Transcript, Turn
from tests.support.guards.stepping import Watched

T, F = True, False


def talk(model, groups_of=4, n=4, seed=0, version=0):
    """Groups of conversations of two turns; every second one has a fork and an aside."""
    generator = torch.Generator().manual_seed(seed)

    def says(prompt, n_tokens):
        ids, logps = [], []
        for _ in range(n_tokens):
            with torch.no_grad():
                logp_V = model(torch.tensor([[*prompt, *ids]])).logits[0, -1].double()
            logp_V = logp_V.log_softmax(-1)
            ids.append(int(torch.multinomial(logp_V.exp(), 1, generator=generator)))
            logps.append(float(logp_V[ids[-1]]))
        return ids, logps

    def conversation(prompt, first, asked, k):
        """Behind a first turn, a message and a turn of k tokens."""
        ids, logps = says((*prompt, *first[0], asked), k)
        turns = (Turn("assistant", "a", len(first[0])), Turn("user", "q", 1))
        script = Transcript("e", (*turns, Turn("assistant", "b", k)), "done")
        return Completion(
            prompt,
            (*first[0], asked, *ids),
            (*first[1], 0.0, *logps),
            (*[T] * len(first[0]), F, *[T] * k),
            "b",
            "stop",
            version,
            transcript=script,
        )

    made = []
    for place in range(groups_of):
        prompt, members = (3, 4 + place, 5), []
        for number in range(n):
            first = says(prompt, 3)
            main = conversation(prompt, first, 1, 3 + number % 2)
            if number % 2:
                fork = conversation(prompt, first, 2, 2)
                fork = replace(fork, loss_mask=(F, F, F, F, T, T))
                ids, logps = says((7, 8), 2)
                script = Transcript("e", (Turn("assistant", "c", 2),), "done")
                aside = Completion(
                    (7, 8), tuple(ids), tuple(logps), (T, T), "c", "stop", version, None, script
                )
                script = replace(main.transcript, counts={"sampled_turns": 4})
                main = replace(main, transcript=script, branches=(fork, aside))
            reward = float((number + place) % 3 == 0)
            members.append(Judged(main, {}, reward, reward > 0))
        problem = Problem(f"p{place}", "?", "core/exact", {}, "toy")
        made.append(Group(problem, tuple(members), version))
    return made


def branched_steps(trainer, kinds, change=lambda groups: groups, n=1):
    """The lines of some steps that guards of these kinds watch."""
    run = Watched(*(kind(kind.Config()) for kind in kinds), trainer=trainer)
    lines, version = [], 0
    for step in range(n):
        found = change(talk(trainer.model, seed=step, version=version))
        for guard in run.guards:
            guard.on_groups(GroupsScored(step, version, tuple(found)))
        report = trainer.update(found, step, version)
        version += report.applied
        lines.append(dict(report.metrics))
        for guard in run.guards:
            lines[-1] |= guard.report()
    return lines
