"""Log-prob, entropy and variance of the surprise at each sampled token, in one forward pass.

For a few rows also how likely classes of tokens were, whatever was sampled: the end of sequence,
what the completion has already, and single frequent tokens.
"""

from __future__ import annotations

import zlib
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from rlvr_core.api.services import predict
from rlvr_core.builtin.invariants.truncation import apart, edges

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from rlvr_core.api import Group, GroupsScored, MicroBatch
    from rlvr_core.builtin.invariants.check import Trainer

_BYTES = 64 << 20
"""Memory of the float32 log-probs of one chunk of tokens."""

FEW = 8192
"""Tokens up to which a pass notes the probabilities of classes as well."""

FREQUENT = 32
"""Single tokens that are classes."""

CANDIDATES = 1024
"""Likeliest tokens that each process names for them."""

RECENT = 8
"""Tokens before one that are the recent ones."""

KINDS = ("end", "seen", "recent")
"""Classes of several tokens; behind them come the single ones."""


LOGP, ENTROPY, VARIANCE, ROW, COLUMN, BELOW, AHEAD = range(7)
"""Columns of ``TokenScores``: log-prob, entropy and variance of the surprise; completion and
position; mass of the tokens of lower id, and of those that are likelier (or as likely, of lower
id). Behind them stands what ``more`` finds."""

WARM_TOKENS = 4096
"""Tokens up to which every group is counted, and after which a step counts no further group."""

SHARE = 64
"""One of so many groups is counted later."""


class Classes:
    """Classes of tokens, and their probabilities at the places of a pass.

    Args:
        ends: Tokens that end a sequence.

    Attributes:
        ids: The single tokens, those of most probability in the first pass; empty before it.
    """

    def __init__(self, ends: Sequence[int]) -> None:
        self.ends, self.ids = tuple(ends), tuple[int, ...]()
        self._mass_V: Tensor | None = None

    def columns(
        self, p_nV: Tensor, target_n: Tensor, batch: MicroBatch, place_n2: Tensor
    ) -> list[Tensor]:
        """Return the sampled tokens, then of each kind its probability and whether it came.

        Behind them stand the probabilities of the single tokens. ``place_n2`` has each token's row
        and column in the batch.
        """
        ids_nT = batch.completion_ids_BT[place_n2[:, 0]]
        back_nT = place_n2[:, 1:] - torch.arange(ids_nT.shape[1], device=ids_nT.device)
        end_V = torch.zeros(p_nV.shape[1], dtype=torch.bool, device=p_nV.device)
        end_V[list(self.ends)] = True
        found = [target_n.float()]
        members = [end_V.expand_as(p_nV)]
        for before_nT in (back_nT > 0, (back_nT > 0) & (back_nT <= RECENT)):
            # what is not before the token goes into a column that is cut off
            column_nT = torch.where(before_nT, ids_nT, p_nV.shape[1])
            in_nV = p_nV.new_zeros(p_nV.shape[0], p_nV.shape[1] + 1, dtype=torch.bool)
            members.append(in_nV.scatter_(1, column_nT, True)[:, :-1])
        for in_nV in members:
            found.append((p_nV * in_nV).sum(-1))
            found.append(in_nV.gather(1, target_n[:, None])[:, 0].float())
        if not self.ids:
            mass_V = p_nV.sum(0)
            self._mass_V = mass_V if self._mass_V is None else self._mass_V + mass_V
        return [*found, *p_nV[:, list(self.ids)].unbind(1)]

    def choose(self, gather: Callable[[list[float]], list[list[float]]]) -> None:
        """Choose the single tokens after the first pass, by their probability in all processes."""
        ids: list[float] = []
        masses: list[float] = []
        if self._mass_V is not None:
            top = self._mass_V.topk(min(CANDIDATES, len(self._mass_V)))
            ids, masses = top.indices.tolist(), top.values.tolist()
        whole: Counter[int] = Counter()
        for theirs, mass in zip(gather(ids), gather(masses), strict=True):
            whole.update({int(one): part for one, part in zip(theirs, mass, strict=True)})
        self.ids = tuple(sorted(one for one, _ in whole.most_common(FREQUENT)))
        self._mass_V = None


def end_ids(model: Any) -> tuple[int, ...]:
    """Return the tokens that end a sequence, by the model's configurations."""
    found: set[int] = set()
    for config in (model.config, getattr(model, "generation_config", None)):
        ids = getattr(config, "eos_token_id", None)
        found |= {ids} if isinstance(ids, int) else set(ids or ())
    return tuple(sorted(found))


def token_moments(
    model: Any,
    batch: MicroBatch,
    *,
    temperature: float,
    autocast_dtype: torch.dtype | None = None,
    compiled: Any = None,
    top_k: int = 0,
    top_p: float = 1.0,
    classes: Classes | None = None,
    more: Callable[[Tensor, Tensor], list[Tensor]] | None = None,
) -> tuple[Tensor, ...]:
    """Return log-prob, entropy, variance of -log p and ``_places`` at each loss token.

    They are of the distribution that an engine samples from: temperature, then top-k, then top-p.

    Args:
        model: The unwrapped model.
        batch: Rows on its device.
        temperature: Of sampling.
        autocast_dtype: Compute precision; None for that of the parameters.
        compiled: The compiled body, if it is to be used.
        top_k: Likeliest tokens that are kept; 0 keeps all.
        top_p: Least probability of the likeliest tokens that are kept.
        classes: Classes of tokens that are looked at too.
        more: Finds more columns in log-probs before truncation, (n, V), and the sampled tokens.

    Returns:
        Seven (B, T) tensors, those of ``more`` and of the classes; 0 outside ``batch.mask_BT``,
        without graph.
    """
    predicted = predict(model, batch, temperature, autocast_dtype, compiled)
    states, head = predicted.states, predicted.head
    vocabulary = states.shape[-1] if head is None else head.weight.shape[0]
    size = max(1, _BYTES // (4 * vocabulary))
    parts: list[Tensor] = []
    whole = (states, predicted.targets, batch.mask_BT.nonzero())
    chunks = zip(*(torch.split(one, size) for one in whole), strict=True)
    for states_n, target_n, place_n2 in chunks:
        with predicted.autocast:
            logits_nV = states_n if head is None else head(states_n)
        whole_nV = (logits_nV.float() / temperature).log_softmax(-1)
        logp_nV = _truncated(whole_nV, top_k, top_p)
        p_nV = logp_nV.exp()
        # p log p is 0 where p is, whatever the log
        weighted_nV = p_nV * logp_nV.clamp(min=-1e4)
        entropy_n = -weighted_nV.sum(-1)
        square_n = (weighted_nV * logp_nV.clamp(min=-1e4)).sum(-1)
        variance_n = (square_n - entropy_n.square()).clamp(min=0.0)
        # a token at the edge may be kept by the engine and not here: it has a log-prob all the same
        shift_n = (logp_nV - whole_nV).amax(-1)
        sampled_n = whole_nV.gather(-1, target_n[:, None])[:, 0] + shift_n
        columns = [sampled_n, entropy_n, variance_n, *_places(p_nV, target_n, batch, place_n2)]
        if more is not None:
            columns += more(whole_nV, target_n)
        if classes is not None:
            columns += classes.columns(p_nV, target_n, batch, place_n2)
        parts.append(torch.stack(columns))
    found_KN = torch.cat(parts, dim=1)
    return tuple(predicted.unpack(one_N) for one_N in found_KN)


def _places(p_nV: Tensor, target_n: Tensor, batch: MicroBatch, place_n2: Tensor) -> list[Tensor]:
    """Return row and position of each token, and the masses ``BELOW`` and ``AHEAD`` of it."""
    lower_nV = torch.arange(p_nV.shape[1], device=p_nV.device) < target_n[:, None]
    own_n1 = p_nV.gather(-1, target_n[:, None])
    ahead_nV = (p_nV > own_n1) | ((p_nV == own_n1) & lower_nV)
    return [
        batch.group_B[place_n2[:, 0]].float(),
        place_n2[:, 1].float(),
        (p_nV * lower_nV).sum(-1),
        (p_nV * ahead_nV).sum(-1),
    ]


def _truncated(logp_nV: Tensor, top_k: int, top_p: float) -> Tensor:
    """Return log-probs of the distribution that top-k and then top-p leave, -inf elsewhere."""
    if top_k <= 0 and top_p >= 1:
        return logp_nV
    sorted_nV, order_nV = logp_nV.sort(dim=-1, descending=True, stable=True)
    if 0 < top_k < logp_nV.shape[-1]:
        sorted_nV[:, top_k:] = -torch.inf
    p_nV = sorted_nV.softmax(-1)
    # a token is kept while those before it have less than top_p
    out_nV = p_nV.cumsum(-1) - p_nV >= top_p
    out_nV[:, 0] = False
    kept_nV = sorted_nV.masked_fill(out_nV, -torch.inf).log_softmax(-1)
    return torch.full_like(logp_nV, -torch.inf).scatter(-1, order_nV, kept_nV)


def fresh_groups(event: GroupsScored) -> tuple[Group, ...]:
    """Return the groups of a step whose every token was sampled under the step's version."""
    return tuple(
        group
        for group in event.groups
        if group.version == event.version
        and not any(
            set(member.completion.token_versions) - {event.version} for member in group.members
        )
    )


def chosen(groups: tuple[Group, ...], step: int, *, warm: bool) -> tuple[Group, ...]:
    """Return the groups of a step that are counted.

    Whether one is does not depend on its own completions: it is drawn by its name, and left out if
    those before it, in the order of the draw, have tokens enough.
    """
    draw = {id(one): zlib.crc32(f"{step}:{one.problem.id}".encode()) for one in groups}
    taken: set[int] = set()
    tokens = 0
    for group in sorted(groups, key=lambda one: draw[id(one)]):
        if tokens < WARM_TOKENS and (warm or draw[id(group)] % SHARE == 0):
            taken.add(id(group))
            tokens += sum(len(member.completion.token_ids) for member in group.members)
    return tuple(group for group in groups if id(group) in taken)


def in_rows(scores_NK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probs of trainer and engine, and where a completion has a token, (R, T) each."""
    row_N, column_N = scores_NK[:, ROW].long(), scores_NK[:, COLUMN].long()
    shape = (int(row_N.max()) + 1, int(column_N.max()) + 1) if len(scores_NK) else (0, 0)
    mask_RT = torch.zeros(shape, dtype=torch.bool)
    mask_RT[row_N, column_N] = True
    found = [torch.zeros(shape), torch.zeros(shape)]
    for whole_RT, column in zip(found, (LOGP, -1), strict=True):
        whole_RT[row_N, column_N] = scores_NK[:, column]
    return found[0], found[1], mask_RT


def slack_of_shares(dtype: torch.dtype, temperature: float) -> float | None:
    """Share by which a probability of an unlikely set of tokens may be off; None for too much.

    What rounds is the logits, and they are divided by the temperature.
    """
    cool = 1 / min(1.0, temperature)
    found = 0.05 * cool if dtype == torch.float32 else 0.2 * cool
    return found if found <= 0.5 else None


class TokenScores:
    """Scores of groups under the trainer, computed once for all invariants that want them.

    Args:
        trainer: The policy's trainer.
        top_k: Of sampling.
        top_p: Of sampling.
    """

    def __init__(self, trainer: Trainer, *, top_k: int = 0, top_p: float = 1.0) -> None:
        self._trainer = trainer
        # rounding decides which tokens a truncation keeps: no class has a sure probability
        whole = top_k <= 0 and top_p >= 1
        margin = apart(trainer.precision.compute, trainer.temperature)
        more = None if whole else partial(edges, top_k=top_k, top_p=top_p, margin=margin)
        self._compute = partial(token_moments, top_k=top_k, top_p=top_p, more=more)
        self.classes = Classes(end_ids(trainer.model)) if whole else None
        self._of: tuple[Group, ...] = ()
        self._scores_NK: Tensor | None = None

    def __call__(self, groups: tuple[Group, ...]) -> Tensor:
        """Return what ``token_moments`` finds, and the engine's log-prob of each token, (N, 8).

        (N, 8 + ``edges``) where sampling truncates its distribution.

        Where the groups have few tokens, what ``Classes.columns`` returns stands before the last
        column.
        """
        same = len(groups) == len(self._of) and all(
            one is other for one, other in zip(groups, self._of, strict=True)
        )
        if self._scores_NK is None or not same:
            n = sum(len(m.completion.token_ids) for group in groups for m in group.members)
            classes = self.classes if n <= FEW else None
            compute = partial(self._compute, classes=classes)
            self._scores_NK = self._trainer.token_scores(groups, compute)
            self._of = groups
            if classes is not None and not classes.ids:
                classes.choose(self._trainer.ranks.gather)
        return self._scores_NK

    @property
    def slack(self) -> float | None:
        """See ``slack_of_shares``."""
        return slack_of_shares(self._trainer.precision.compute, self._trainer.temperature)

    def forget(self) -> None:
        """Release what was computed for the last step."""
        self._of, self._scores_NK = (), None
