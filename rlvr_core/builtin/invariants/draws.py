"""Invariant ``draws``: the problems of a step are those that configuration and data give.

Where the order of a sampler is published, it is computed again (``published_order``). Every sampler
is held to its traits and the configuration: problems of the data alone, none that a filter took
out, groups and steps of the right size, and none trained on in more steps than allowed.
``own_samplers`` knows more of the samplers of plugins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rlvr_core.api import Metric, SamplerTraits, traits_of
from rlvr_core.builtin.invariants.check import PRINTED, Invariant, StepView
from rlvr_core.builtin.invariants.difficulty_draws import DifficultyDraws
from rlvr_core.builtin.invariants.group_reads import Reads
from rlvr_core.builtin.invariants.group_sizes import GroupSizes
from rlvr_core.builtin.invariants.own_samplers import Rounds, few, is_own, loses_its_place
from rlvr_core.builtin.invariants.published_order import expected_order, sampler_name

if TYPE_CHECKING:
    from rlvr_core.api import Group, GroupsScored, Json, RunStarted, Source, StepFinished
    from rlvr_core.api.services import RunConfig


class Draws(Invariant):
    """Problems and sizes of groups are those that were asked for.

    Args:
        config: The run's configuration.
        sampler: Chooses the problems; None where there is none.
        sources: The training data, without problems that were taken out.
        main: Whether this process is the one that draws, where generation runs ahead of training.
        say: Tells the user.
    """

    id, phase = "draws", "before training"
    reports = (
        Metric("draws/unexpected", "Groups of problems that the sampler's order has not.", ""),
        Metric("draws/distinct", "Different problems among the groups of the step.", "problems"),
    )

    def __init__(
        self,
        config: RunConfig,
        sampler: Any,
        sources: Sequence[Source],
        *,
        main: bool = True,
        say: Callable[[str], None] = PRINTED,
    ) -> None:
        self._config, self._sampler, self._sources = config, sampler, sources
        self._main, self._say = main, say
        self._traits = traits_of(sampler, SamplerTraits)
        self._ids = {problem.id for source in sources for problem in source.problems}
        self._out = {id_ for source in sources for id_ in source.left_out}
        self._oldest = config.train.max_staleness
        self._sizes = GroupSizes(config, sampler)
        self._arrived: Sequence[Group] | None = None
        by_rate = sampler_name(sampler) == "difficulty:Difficulty" and sources
        self._pools = DifficultyDraws(config, sources) if by_rate else None
        order = expected_order(config, sampler, sources) if sources else None
        # elsewhere the sampler stands still, and what was drawn is not known
        self._order = order if main or not self._oldest else None
        self._rounds = Rounds(self._ids) if sources and is_own(sampler) else None
        self._next, self._open = 0, Counter[str]()
        self._restored = self._resumed = False
        self._reads = Reads(self._traits.max_reads, self._oldest)
        self._step = 0
        self._found: dict[str, float] = {}

    # -- what is drawn ---------------------------------------------------------------------------

    def run_started(self, event: RunStarted) -> None:
        """Begin with the next draw of the sampler, or where the checkpoint says."""
        self._resumed = event.resumed and event.step > 0
        self._try_copies(event.step)
        if self._pools is not None:
            self._pools.start(self._sampler.drawn, self._sampler.position())
        if not self._restored and self._order is not None:
            if self._resumed and self._oldest:
                self._order = None  # which draws are on their way is not known
            else:
                self._skip(self._sampler.drawn)

    def _try_copies(self, step: int) -> None:
        """Try copies of a plugin's sampler: a note, or an error of a run that was resumed."""
        if self._rounds is None:
            return
        what = loses_its_place(self._sampler, self._config, self._sources)
        if what and self._resumed:
            raise self.fault(
                step,
                f"going on from the checkpoint, {what} (band: none)",
                "load_state_dict has to restore everything that decides what is drawn: the place "
                "in an order, iterators and generators of random numbers too",
            )
        if what:
            self._note(f"{what}: a resumed run would not draw the problems that it would have")

    def _note(self, what: str) -> None:
        if self._main:
            self._say(f"warning: guard draws: {what}")

    def on_groups(self, event: GroupsScored) -> None:
        """Compare a step's groups, dropped ones included, with what was to be drawn."""
        # what is too old is drawn again, and comes twice
        groups = [one for one in event.groups if one.version >= event.version - self._oldest]
        self._reads.arrived(event.groups)
        self._arrived = event.groups
        self._found = {"draws/distinct": float(len({group.problem.id for group in groups}))}
        self._check_data(event.step, groups)
        self._check_sizes(event.step, groups)
        if not self._oldest:  # what is dropped as too old may have ended anywhere
            self._check_growth(event.step, groups)
        self._check_variety(event.step, groups)
        if self._rounds is not None:
            came = [group.problem.id for group in groups]
            if what := self._rounds.left_out(came):
                self._note(f"{what}; the sampler {self._config.sampler.use} leaves them out")
        if self._order is None:
            return
        ahead = self._sampler.drawn if self._oldest else self._next + len(groups)
        wanted = self._take(max(0, ahead - self._next))
        self._open.update(wanted)
        drawn = Counter(group.problem.id for group in groups)
        odd = drawn - self._open
        self._found["draws/unexpected"] = float(sum(odd.values()))
        if odd:
            raise self.fault(
                event.step,
                f"{self._after()}{sum(odd.values())} of {len(groups)} groups are of problems whose "
                f"turn it is not, such as {next(iter(odd))} (band: none): the sampler "
                f"{self._config.sampler.use} has {few(wanted or list(self._open))} next, and "
                f"{few([group.problem.id for group in groups])} came",
                self._cause(drawn, wanted),
            )
        self._open -= drawn

    def _check_data(self, step: int, groups: Sequence[Group]) -> None:
        most = self._config.data.max_prompt_tokens
        for group in groups:
            name = group.problem.id
            lengths = [len(member.completion.prompt_ids) for member in group.members]
            # a conversation may grow beyond it, the prompt that it begins with may not
            if name in self._out or (lengths and min(lengths) > most):
                raise self.fault(
                    step,
                    f"problem {name} was drawn, and the filter on prompt lengths took it out of "
                    f"the data: data.max_prompt_tokens is {most}",
                    "what counts and filters prompts is not what the sampler was given: look at "
                    "what hands data to the sampler",
                )
            if self._ids and name not in self._ids:
                raise self.fault(
                    step,
                    f"problem {name} was drawn, and no source of the training data has it",
                    "the sampler holds other data than the run: look at what it was started with",
                )

    def _check_sizes(self, step: int, groups: Sequence[Group]) -> None:
        n, most = self._config.sampling.n, self._traits.max_completions
        for group in groups:
            size = len(group.members)
            if size == n if most is None else 1 <= size <= most:
                continue
            wanted = f"sampling.n is {n}" if most is None else f"the sampler says 1 to {most}"
            raise self.fault(
                step,
                f"the group of problem {group.problem.id} has {size} completions, and {wanted} "
                "(band: none)",
                "the sampler asks for groups of another size, or completions are lost or repeated "
                "on their way: look at Draw.n. A sampler whose groups differ in size says so by "
                "SamplerTraits.max_completions",
            )

    def _check_growth(self, step: int, groups: Sequence[Group]) -> None:
        """Check that groups that grow have ended where the rule says."""
        for group in groups:
            if what := self._sizes.wrong(group):
                rule = self._config.sampler.with_["adaptive"]
                raise self.fault(
                    step,
                    f"{what}, and sampler.with.adaptive is {rule} (band: none)",
                    "groups stop growing at something else than the rule: k_success passed and "
                    "k_failure failed, max_total_tokens or max_completions. What stops at an "
                    "outcome chooses by it, and biases what the policy learns",
                )

    def _check_variety(self, step: int, groups: Sequence[Group]) -> None:
        """Check what ``core/difficulty`` promises of the problems that it draws at once."""
        n, by_rate = self._config.train.prompts_per_step, self._pools is not None
        phased = self._config.sampler.with_.get("phases") or self._traits.max_reads > 1
        if not by_rate or phased or self._oldest or len(groups) < n:
            return
        once = {group.problem.id for group in groups[:n]}
        least = min(n, len(self._ids))
        if len(once) < least:
            raise self.fault(
                step,
                f"a step draws {len(once)} different problems, and the sampler draws {least} of "
                f"them before one comes twice: {few(sorted(once))}",
                "problems are drawn several times at once: look at what the sampler chooses",
            )

    def _cause(self, drawn: Counter[str], wanted: Sequence[str]) -> str:
        """Return what most likely draws those problems in the place of these."""
        config, total = self._config, sum(drawn.values())
        kind = config.sampler.use
        if len(drawn) == 1 and total > 1 and len(set(wanted)) > 1:
            return "one problem is drawn for all of the step: look at what the sampler chooses"
        if len(drawn) < total and len(drawn) < len(set(wanted)):
            return (
                "problems are drawn several times in one epoch: the epoch is cut short, begins "
                "again, or is drawn from with replacement"
            )
        if self._resumed:
            return (
                "look at what restores the sampler: its seed, its epoch and its place in it; data "
                "in another order are no reason where the order is shuffled"
            )
        files = [problem.id for source in self._sources for problem in source.problems]
        if len(drawn) == total and drawn == Counter(files[self._next - total : self._next]):
            return f"they come in the order of the data, and the sampler is {kind}"
        owner = {problem.id: s.name for s in self._sources for problem in s.problems}
        if len(self._sources) > 1:
            came, turn = (
                Counter(owner[one] for one in some) for some in (drawn.elements(), wanted)
            )
            if came != turn:
                return (
                    f"the sources have another share than their weight in data.sources: "
                    f"{dict(came)}, and {dict(turn)} would be right"
                )
        return (
            "the sampler shuffles by another seed or another rule, reads a part of the data only, "
            "or has lost its place in the epoch"
        )

    def _after(self) -> str:
        return "going on from the checkpoint, " if self._resumed else ""

    def _take(self, n: int) -> list[str]:
        assert self._order is not None
        self._next += n
        return [next(self._order) for _ in range(n)]

    def _skip(self, n: int) -> None:
        """Leave out what was drawn before this process began to look."""
        self._take(n - self._next)

    # -- what is trained on ----------------------------------------------------------------------

    def begin(self, view: StepView) -> None:
        """Check how often the step's groups have been trained on."""
        self._step = view.step
        arrived, self._arrived = self._arrived, None
        if self._oldest:
            self._check_growth(view.step, view.groups)
            self._check_ages(view)
        elif arrived is not None and (what := self._sizes.wrong_number(arrived, view.groups)):
            raise self.fault(
                view.step,
                f"{what} (band: none)",
                "a step stops drawing too early or goes on: look at what asks for replacements of "
                "dropped groups",
            )
        if self._pools is not None and arrived is not None:
            self._check_pools(view, self._sizes.rounds(arrived, view.groups))
        if what := self._reads.wrong(view.groups):
            raise self.fault(
                view.step,
                f"{what}, and the sampler's max_reads is {self._traits.max_reads}",
                "old groups are read for ever: look at what counts the reads of the replay buffer",
            )

    def _check_ages(self, view: StepView) -> None:
        """Check that nothing is trained on that is older than it may be."""
        old = [one for one in view.groups if view.version - one.version > self._oldest]
        if old:
            raise self.fault(
                view.step,
                f"{len(old)} of {len(view.groups)} groups are up to "
                f"{max(view.version - one.version for one in old)} updates old, such as that of "
                f"problem {old[0].problem.id}, and train.max_staleness is {self._oldest} (stale "
                "completions; band: none)",
                "groups that are too old must be dropped before a step trains on them: look at "
                "what bounds how far generation runs ahead of training, and at what evicts groups",
            )

    def _check_pools(self, view: StepView, rounds: Sequence[Sequence[Group]]) -> None:
        """Check draws by pass rate, where it is known what was drawn at once."""
        if not rounds:
            self._pools = None
        elif self._pools is not None and (what := self._pools.wrong(view.step, rounds)):
            raise self.fault(
                view.step,
                f"{what}: the sampler {self._config.sampler.use} does not draw as its options say",
                "look at what weighs pools of difficulty, at which pool a pass rate belongs to, "
                "and at the order within a pool",
            )

    def finished(self, event: StepFinished) -> None:
        """Compare the sizes of pools that the line of the step reports."""
        if self._pools is not None and (what := self._pools.wrong_figure(event.metrics)):
            raise self.fault(
                event.step,
                what,
                "look at what counts the pools of difficulty, and at what learns of outcomes",
            )
        # one order over all the data
        if self._order is None or self._oldest or "sampler/epoch" not in event.metrics:
            return
        told, due = event.metrics["sampler/epoch"], self._next / max(1, len(self._ids))
        if sampler_name(self._sampler).startswith("epochs:") and abs(told - due) > 1e-9:
            raise self.fault(
                event.step,
                f"sampler/epoch is reported as {told:.6g}, and {self._next} draws from "
                f"{len(self._ids)} problems of the data make {due:.6g}",
                "look at what counts the passes over the data",
            )

    def updated(self, view: StepView, grad_norm: float, *, applied: bool) -> None:
        """A step of which an update was skipped may be no read."""
        if not applied:
            self._reads.skipped()

    def end(self, view: StepView) -> Mapping[str, float]:
        """Count the reads of the step's groups."""
        self._reads.read(view)
        return self._found

    def state_dict(self) -> dict[str, Json]:
        """Return how far the order has been drawn, and what of it has not arrived.

        Raises:
            RunError: If the sampler goes on with another memory of its problems than it should.
        """
        followed = self._pools if not self._oldest else None
        if followed is not None and (what := followed.wrong_memory(self._sampler.position())):
            raise self.fault(
                self._step,
                f"{what} (band: none)",
                "later draws go by it: look at what the sampler notes of a draw and of an outcome",
            )
        return {"next": self._next, "open": dict(self._open)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from there."""
        if self._order is not None:
            self._skip(state["next"])
            self._open = Counter(state["open"])
            self._restored = True
