"""Guard ``view/gaps``: records how much trainer and engine differ on each token.

It never stops a run. The viewer colours tokens by ``traces/gaps.jsonl``, which has a line for each
step: ``{"step": 3, "gaps": {KEY: VALUES}}``. KEY is a hash of a completion's prompt and tokens.
VALUES are trainer - engine log-probs at the step's start, in nats, one for each token, as
little-endian float16 in base64, with NaN for tokens outside the loss. A step that is repeated after
a resumption is written again, and its last line counts.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from rlvr_core.api import BaseGuard, NoConfig
from rlvr_core.record.jsonl import Stream
from rlvr_view.viewer.gaps import key_of

if TYPE_CHECKING:
    from rlvr_core.api import RunFinished, RunStarted, SeenMicroBatch


class Gaps(BaseGuard):
    """Writes the log-prob differences that guard ``core/parity`` checks, token by token."""

    name = "view/gaps"

    def __init__(self, config: NoConfig) -> None:
        super().__init__(config)
        self._stream: Stream | None = None
        self._values: dict[str, str] = {}

    def run_started(self, event: RunStarted) -> None:
        """Open the file, in the process that writes the run's folder."""
        if self.context.ranks.main:
            self._stream = Stream(event.run_dir / "traces" / "gaps.jsonl")

    def update_begins(self) -> None:
        """Gather the gaps of the rows that the step trains on for the first time."""
        values = {}
        if self.view.first_pass:
            for seen in self.view.seen:
                values.update(gaps_of(seen))
        for shares in self.context.ranks.gather(values):
            self._values.update(shares)

    def step_ends(self) -> Mapping[str, float]:
        """Write the step's line."""
        if self._stream is not None and self._values:
            self._stream.write({"step": self.view.step, "gaps": dict(sorted(self._values.items()))})
        self._values = {}
        return {}

    def run_finished(self, event: RunFinished) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()


def gaps_of(seen: SeenMicroBatch) -> dict[str, str]:
    """Return the encoded gaps of each row of a micro-batch, by the key of its completion."""
    micro, batch = seen.micro_batch.host, seen.batch
    gap_BT = (batch.old_logp_BT - batch.behaviour_logp_BT).float()
    masked_BT = gap_BT.masked_fill(~batch.mask_BT, float("nan")).cpu().numpy()
    with np.errstate(over="ignore"):
        half_BT = masked_BT.astype("<f2")
    prompts = micro.prompt_ids_SP.tolist()
    values = {}
    for row, prompt in enumerate(micro.prompt_of_row_B.tolist()):
        tokens = micro.completion_ids_BT[row, : micro.completion_len_B[row]].tolist()
        key = key_of(prompts[prompt][: micro.prompt_len_S[prompt]], tokens)
        values[key] = base64.b64encode(half_BT[row, : len(tokens)].tobytes()).decode("ascii")
    return values
