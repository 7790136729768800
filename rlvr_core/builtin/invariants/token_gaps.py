"""Records by how much trainer and engine differ on each token, in ``traces/gaps.jsonl``.

A line a step: ``{"step": 3, "gaps": {KEY: VALUES}}``. KEY is made of a completion's prompt and
tokens, on which its log-probs depend alone. VALUES are trainer - engine log-prob at the step's
start, in nats, one a token, as little-endian float16 in base64; NaN where the loss does not count.
docs/runs.md has the format, which the viewer reads.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlvr_core.api.services import Stream
from rlvr_core.builtin.invariants.check import Invariant, StepView
from rlvr_core.builtin.invariants.rows import rows_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rlvr_core.api import Json, LossBatch, RunStarted


class TokenGaps(Invariant):
    """Writes what guard ``parity`` compares, token by token; it judges nothing.

    Args:
        main: Whether this process writes the run's files.
    """

    id, phase = "gaps", "before each update"

    def __init__(self, *, main: bool) -> None:
        self._main = main
        self._offset = 0
        self._stream: Stream | None = None
        self._found: dict[str, Json] = {}

    def run_started(self, event: RunStarted) -> None:
        """Go on where the checkpoint left the file."""
        if self._main:
            self._stream = Stream(event.run_dir / "traces" / "gaps.jsonl")
            self._stream.rewind(self._offset)

    def share(self, view: StepView) -> dict[str, bytes]:
        """Return the gaps of this process's rows, by completion."""
        if not view.first_pass:
            return {}
        gaps_BT = {id(seen): _gaps(seen.batch) for seen in view.seen}
        shares = {}
        for row in rows_of(view):
            _, prompt, tokens = row.key
            shares[_key(prompt, tokens)] = gaps_BT[id(row.seen)][row.index, : len(tokens)].tobytes()
        return shares

    def judge(self, view: StepView, shares: Sequence[Any]) -> None:
        """Keep the gaps of all processes."""
        if self._main:
            for share in shares:
                for key, data in share.items():
                    self._found.setdefault(key, base64.b64encode(data).decode("ascii"))

    def end(self, view: StepView) -> Mapping[str, float]:
        """Write the step's line."""
        if self._stream is not None and self._found:
            self._stream.write({"step": view.step, "gaps": dict(sorted(self._found.items()))})
        self._found = {}
        return {}

    def state_dict(self) -> dict[str, Json]:
        """Return how long the file is."""
        return {"offset": self._offset if self._stream is None else self._stream.offset()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Remember how long the file was."""
        self._offset = int(state["offset"])


def _key(prompt: Sequence[int], tokens: Sequence[int]) -> str:
    text = json.dumps([list(prompt), list(tokens)])
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _gaps(batch: LossBatch) -> NDArray[np.float16]:
    """Return trainer - engine log-prob of a micro-batch, (B, T); NaN outside the loss mask."""
    gap_BT = (batch.old_logp_BT - batch.behaviour_logp_BT).float()
    masked = gap_BT.masked_fill(~batch.mask_BT, float("nan")).cpu().numpy()
    with np.errstate(over="ignore"):
        return masked.astype("<f2")
