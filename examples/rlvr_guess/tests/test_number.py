import pytest

from rlvr_devkit.conformance.environments import play
from rlvr_guess import Games, Number


@pytest.fixture
def game():
    return next(iter(Games(Games.Config(n=1)).load()))


@pytest.fixture
def number():
    return Number(Number.Config())


def test_halving_finds_the_number_within_seven_guesses(number, game):
    for seed in range(20):
        low, high, replies = 1, 100, []
        while True:
            guess = (low + high) // 2
            replies.append(str(guess))
            script = play(number, game, replies, seed=seed)
            if script.ended == "done":
                break
            if script.turns[-1].text == "higher\n":
                low = guess + 1
            else:
                high = guess - 1
        assert script.verdict.passed
        assert len(replies) <= 7
        assert sum(script.counts.values()) == len(replies) - 1


def test_words_lose(number, game):
    script = play(number, game, ["fifty", "50"])
    assert (script.ended, script.verdict.score, script.n_turns) == ("done", 0.0, 1)
