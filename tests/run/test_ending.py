"""How a process that does not write the run's record ends while its shard is being written."""

from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from rlvr_core.api import RunError
from rlvr_core.run.checkpointing import Writing
from rlvr_core.run.ending import recorded_outcome


class OnlyWaits(Future):
    """A future that is done when, and only if, somebody waits for it."""

    def __init__(self, outcome):
        super().__init__()
        self.outcome = outcome

    def result(self, timeout=None):
        assert timeout, "a wait that nothing ends"
        if isinstance(self.outcome, Exception):
            self.set_exception(self.outcome)
        else:
            self.set_result(self.outcome)
        return super().result(timeout)


@pytest.mark.parametrize("outcome", [None, RunError("a full disk")])
def test_a_process_that_fails_first_ends_the_writing_of_its_shard(outcome):
    """Process 0 completes the checkpoint only with the shards of all."""
    shard = OnlyWaits(outcome)
    session = SimpleNamespace(writing=Writing(4, shard), events=None)
    with pytest.raises(RuntimeError, match="the fault"), recorded_outcome(session, None):
        raise RuntimeError("the fault")
    assert shard.done()
    assert session.writing is None
