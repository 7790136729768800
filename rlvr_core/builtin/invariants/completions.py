"""Invariant ``completions``: their text, finish reason and version follow from their tokens.

All completions of a step are checked by their token ids, and a part of them is decoded. At the
start, a sheet of absolute bounds says what would keep a run from learning (``first_sheet``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api import Metric
from rlvr_core.builtin.invariants.check import Invariant, StepView
from rlvr_core.builtin.invariants.conversations import wrong_conversation
from rlvr_core.builtin.invariants.first_sheet import FirstSheet
from rlvr_core.builtin.invariants.model_files import ModelFiles
from rlvr_core.builtin.invariants.replays import Replays
from rlvr_core.builtin.invariants.texts import Texts, others_than_asked

if TYPE_CHECKING:
    from rlvr_core.api import (
        Completion,
        EvalFinished,
        Group,
        GroupsScored,
        LossComputed,
        RunStarted,
        WeightSource,
    )
    from rlvr_core.api.services import Conversations, RunConfig
    from rlvr_core.builtin.invariants.seeds import Seeds

AT_FIRST = 128
"""Completions that are decoded in the first step, evenly spread."""
LATER = 32
"""The same in each later step."""


class Completions(Invariant):
    """What is judged and trained is what was sampled, as it was sampled.

    Args:
        config: The run's configuration.
        files: The model's files.
        conversations: Present problems, and have their environments.
        seeds: Follows the draws of the sampler; None if it counts them in another way.
        room: Tokens of prompt and completion that the engine was told to make room for.
        say: Tells the user.
        evaluations: What evaluates the policy; None where nothing does.
    """

    id, phase = "completions", "before each step"
    reports = (
        Metric("completions/end_token", "Share that ends with an end-of-sequence token.", "share"),
        Metric("completions/stop_string", "Share that ends with a stop string.", "share"),
        Metric("completions/decoded", "Completions of the step that were decoded again.", ""),
    )

    def __init__(
        self,
        config: RunConfig,
        files: ModelFiles,
        conversations: Conversations,
        seeds: Seeds | None,
        room: int,
        say: Callable[[str], None],
        evaluations: Any = None,
    ) -> None:
        self._files = files
        self._environment = conversations.environment
        self._replays = Replays(config.environment.max_turns, conversations.environment, seeds)
        self._evaluations = evaluations
        self._texts = partial(
            Texts, files, conversations, room=room, turn_cap=config.environment.max_turn_tokens
        )
        self._sampling = config.sampling
        self._max_turns = config.environment.max_turns
        self._in_turns = config.train.max_staleness == 0
        self._sheet = FirstSheet(config, files, say)
        self._found: dict[str, float] = {}
        self._base: int | None = None
        self._loaded: set[int] = set()

    def run_started(self, event: RunStarted) -> None:
        """Begin where the sampler is."""
        self._replays.run_started()

    def weights_loaded(self, step: int, version: int, source: WeightSource) -> None:
        """Note which versions the engine has had."""
        self._loaded.add(version)

    def on_groups(self, event: GroupsScored) -> None:
        """Check the completions of a step, dropped groups included."""
        self._check_versions(event)
        self._check_conversations(event)
        places = [(group, number) for group in event.groups for number in range(len(group.members))]
        stride = max(1, -(-len(places) // (LATER if event.step else AT_FIRST)))
        decoded = places[event.step % stride :: stride]
        texts = self._texts(stop=self._sampling.stop, max_tokens=self._sampling.max_tokens)
        counts = texts.count(event.groups, decoded)
        if wrong := texts.wrong_ending(counts) or texts.wrong_text(decoded):
            raise self.fault(event.step, *wrong)
        self._sheet.open |= event.step == 0
        self._sheet.add(event.groups)
        self._found = {"completions/decoded": float(len(decoded))}
        if counts.turns:
            self._found["completions/end_token"] = counts.by_token / counts.turns
            self._found["completions/stop_string"] = counts.by_string / counts.turns

    def evaluated(self, event: EvalFinished) -> None:
        """Check the completions of an evaluation: each problem has its own, whole and as judged."""
        latest = None if self._evaluations is None else self._evaluations.latest
        if latest is None or latest[0].name != event.task:
            return
        found, params = latest
        groups = [one.group for one in found.sampled]
        (task,) = (one.task for one in self._evaluations.tasks if one.name == event.task)
        places = [(group, number) for group in groups for number in range(len(group.members))]
        decoded = places[:: max(1, -(-len(places) // AT_FIRST))]
        texts = self._texts(stop=params.stop, max_tokens=params.max_tokens)
        wrong = others_than_asked(groups, self._evaluations.held_out[event.task], task.n)
        if wrong := wrong or texts.wrong(groups, decoded):
            what, remedy = wrong
            where = f"in the evaluation {event.task} after {event.step} steps "
            raise self.fault(event.step - 1, where + what, remedy)

    def end(self, view: StepView) -> Mapping[str, float]:
        """Return how completions ended."""
        return self._found

    # -- conversations -----------------------------------------------------------------------------

    def _check_conversations(self, event: GroupsScored) -> None:
        """Check that conversations are what their transcripts say."""
        for group in event.groups:
            environment = self._environment(group.problem)
            for number, member in enumerate(group.members):
                if found := wrong_conversation(member.completion, environment, self._max_turns):
                    what, remedy = found
                    raise self.fault(
                        event.step,
                        f"conversation {number} about problem {group.problem.id} {what} "
                        "(band: none)",
                        remedy,
                    )
        if what := self._replays.wrong(event):
            raise self.fault(
                event.step,
                f"{what} (band: none)",
                "conversations, their states or verdicts are mixed up or changed between the "
                "environment and the record, or the environment says otherwise each time: then its "
                "EnvironmentTraits must not have deterministic=True",
            )

    def given(self, view: StepView, event: LossComputed) -> None:
        """Check that answers to imitate end as a model has to end them, and are trained on."""
        micro, mask_BT = event.micro_batch, event.losses[0][1].mask_BT
        last_B1 = (micro.completion_len_B - 1).clamp(min=0)[:, None]
        columns = (micro.completion_ids_BT.gather(1, last_B1), mask_BT.gather(1, last_B1))
        rows = torch.cat([one.long() for one in columns], dim=1).tolist()
        endless = sum(token not in self._files.end_ids for token, _ in rows)
        untrained = sum(not inside for _, inside in rows)
        if endless or untrained:
            what = "lack the end-of-sequence token" if endless else "leave it out of the loss mask"
            raise self.fault(
                view.step,
                f"{endless or untrained} of {len(rows)} given answers (demonstrations) of a "
                f"micro-batch {what} (band: none)",
                "a model that imitates them never learns to stop: look at what encodes the answers "
                "and makes their rows",
            )

    # -- versions ----------------------------------------------------------------------------------

    def _check_versions(self, event: GroupsScored) -> None:
        if self._base is None:
            self._base = event.version
        wrong = [
            (group, number, what)
            for group in event.groups
            for number, member in enumerate(group.members)
            for row in member.completion.rows
            if (what := self._wrong_version(group, row, event.version))
        ]
        if wrong:
            group, number, what = wrong[0]
            n = sum(len(one.members) for one in event.groups)
            raise self.fault(
                event.step,
                f"{len(wrong)} of {n} completions have a version label that is not that of the "
                f"weights they were sampled from: completion {number} of problem "
                f"{group.problem.id} {what}",
                "an engine labels what it samples with the version that its last load_weights was "
                "given, read before generation begins: staleness, and all that compares policies, "
                "go by this label",
            )

    def _wrong_version(self, group: Group, completion: Completion, now: int) -> str:
        labels = completion.token_versions or (completion.version,)
        versions = {completion.version, *labels}
        if max(versions) > now:
            return f"says version {max(versions)}, and the policy is at version {now}"
        if min(versions) < 0 or list(labels) != sorted(labels) or labels[0] != completion.version:
            return (
                f"begins under version {completion.version} and has tokens of {sorted({*labels})}"
            )
        if self._in_turns:
            # a group of an earlier step is for the guard tokens to name
            if group.version == now and versions != {now}:
                return f"says version {min(versions)}, and the engine has that of version {now}"
            return ""
        assert self._base is not None
        unknown = {one for one in versions if one > self._base} - self._loaded
        return f"says version {min(unknown)}, which no engine was ever given" if unknown else ""
