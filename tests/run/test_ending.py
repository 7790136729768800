"""How a process ends that is interrupted, or whose shard is being written when it fails."""

import contextlib
import signal
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from rlvr_core.api import RunError
from rlvr_core.run.checkpointing import Writing
from rlvr_core.run.ending import Stop, recorded_outcome


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


@pytest.fixture
def listening():
    """Makes stops that listen; the handlers and the alarm clock are put back."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]

    def made(**options):
        stop = Stop(**options)
        stop.listen()
        return stop

    yield made
    signal.alarm(0)
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_of_which_an_import_makes_another_exception_is_one(listening, number):
    """NumPy and transformers do so, a few times in a hundred interrupts while they are imported."""

    def imported():
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(number)
        raise ModuleNotFoundError("Could not import module 'AutoTokenizer'")

    stop = listening()
    with pytest.raises(KeyboardInterrupt) as caught, stop.heeded():
        imported()
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_errors_without_an_interrupt_and_of_a_step_that_was_to_end_stay(listening):
    with pytest.raises(ValueError, match="mine"), listening().heeded():
        raise ValueError("mine")
    stop = listening(patient=True)
    stop.stepping = True
    signal.raise_signal(signal.SIGTERM)  # the step goes on to its end
    with pytest.raises(ValueError, match="mine"), stop.heeded():
        raise ValueError("mine")
    assert stop.requested
