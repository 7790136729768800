"""A verifier as TRL's reward function: what it is given and gives, and in TRL's own trainer."""

from __future__ import annotations

import os

import pytest

from rlvr_core.api import ConfigError, DataError, RunError
from rlvr_env.bridges.trl import trl_reward


@pytest.fixture
def reward():
    """Makes reward functions, and ends their processes."""
    made = []

    def make(*args, **options):
        made.append(trl_reward(*args, workers=1, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_scores_of_plain_and_conversational_completions(reward):
    exact = reward("core/exact")
    assert exact.__name__ == "core/exact"
    assert exact(
        prompts=["1+1=", "1+1=", "2+2="],
        completions=["2", "3", "4"],
        completion_ids=[[5], [6], [7, 8]],
        answer=["2", "2", "4"],
        trainer_state=object(),  # no column, and no JSON
    ) == [1.0, 0.0, 1.0]
    user = [{"role": "user", "content": "1+1="}]
    called = [
        {"role": "assistant", "content": None, "tool_calls": [{"type": "function"}]},
        {"role": "tool", "name": "add", "content": "3"},
        {"role": "assistant", "content": [{"type": "text", "text": "2"}]},
    ]
    said = [[{"role": "assistant", "content": "2"}], called, [{"role": "tool", "content": "2"}]]
    assert exact(prompts=[user] * 3, completions=said, answer=["2"] * 3) == [1.0, 1.0, 0.0]


def test_options_and_columns(reward):
    exact = reward("core/exact", {"casefold": True}, columns={"answer": "solution"})
    given = {"prompts": ["a", "b"], "completions": ["YES", "no"]}
    assert exact(**given, solution=["yes", "yes"], answer=["no", "no"]) == [1.0, 0.0]
    with pytest.raises(DataError, match=r"no column 'solution'.*(?s:.*)columns are: answer"):
        exact(**given, answer=["no", "no"])


def test_no_score_is_none_and_trl_is_told_why(reward, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "import os, time\n"
        "def judged(text, answer):\n"
        "    if text == 'die': os._exit(3)\n"
        "    if text == 'hang': time.sleep(600)\n"
        "    if text == 'raise': raise ValueError('no such answer')\n"
        "    return len(text) / 4\n"
    )
    judged = reward(f"{file}:judged", timeout=1.0)
    extra, metrics = {}, {}
    texts = ["die", "ok", "hang", "raise", "fine"]
    found = judged(
        prompts=["p"] * 5,
        completions=texts,
        answer=["", "", "", "", None],  # a row of a mixed data set that has no such column
        log_extra=extra.setdefault,
        log_metric=metrics.setdefault,
    )
    assert found == [None, 0.5, None, None, None]
    (told,) = extra.values()
    assert "worker died" in told[0]
    assert told[1] == "ok"
    assert told[2].startswith("timeout")
    assert "no such answer" in told[3]
    assert told[4].startswith("unscorable")
    assert "takes 'answer'" in told[4]
    assert list(metrics.values()) == [0.8]


def test_a_field_that_no_row_has_is_an_error_that_names_it(reward):
    with pytest.raises(DataError, match=r"core/exact needs.*answer(?s:.*)a row has: solution"):
        reward("core/exact")(prompts=["a"], completions=["b"], solution=["c"])


def test_a_verifier_that_only_fails_ends_the_training(reward, tmp_path):
    (tmp_path / "bad.py").write_text("def bad(text):\n    raise KeyError('gone')\n")
    bad = reward(f"{tmp_path / 'bad.py'}:bad")
    with pytest.raises(RunError, match=r"failed on 20 of its last 20(?s:.*)gone"):
        bad(prompts=["p"] * 20, completions=["t"] * 20)


def test_a_verifier_that_compares_needs_whole_groups(reward, tmp_path):
    (tmp_path / "short.py").write_text(
        "def short(completions):\n"
        "    least = min(map(len, completions))\n"
        "    return [float(len(one) == least) for one in completions]\n"
    )
    name = f"{tmp_path / 'short.py'}:short"
    with pytest.raises(ConfigError, match="group=num_generations"):
        reward(name)
    short = reward(name, group=2)
    texts = ["abcd", "abc", "a", "ab"]
    assert short(prompts=["p", "p", "q", "q"], completions=texts) == [0.0, 1.0, 1.0, 0.0]
    with pytest.raises(ConfigError, match="3 completions are no groups of 2"):
        short(prompts=["p"] * 3, completions=texts[:3])


def test_an_unknown_verifier_or_option_is_refused():
    with pytest.raises(ConfigError, match="core/exact"):
        trl_reward("core/exakt")
    with pytest.raises(ConfigError, match="casefold"):
        trl_reward("core/exact", {"casefolt": True})


@pytest.mark.slow
def test_trl_trains_on_it(reward, tmp_path):
    """Two steps of TRL's GRPO, whose logged means are those of the rewards it was given."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from rlvr_core.testing.random_model import save_random_model

    (tmp_path / "mine.py").write_text(
        "def even(text, wanted):\n    return float((len(text) % 2 == 0) == wanted)\n"
    )
    even = reward(f"{tmp_path / 'mine.py'}:even")
    given = []

    def recorded(**asked):
        given.append(even(**asked))
        return given[-1]

    recorded.__name__ = "even"
    trainer = GRPOTrainer(
        model=str(save_random_model(tmp_path / "model")),
        reward_funcs=[even, recorded],
        args=GRPOConfig(
            output_dir=str(tmp_path / "out"),
            per_device_train_batch_size=4,
            num_generations=4,
            max_completion_length=8,
            max_steps=2,
            logging_steps=1,
            use_cpu=True,
            report_to=[],
            save_strategy="no",
        ),
        train_dataset=Dataset.from_list([{"prompt": "ab", "wanted": True}] * 4),
    )
    trainer.train()
    logged = [line for line in trainer.state.log_history if "reward" in line]
    assert len(logged) == len(given) == 2
    for line, rewards in zip(logged, given, strict=True):
        assert line[f"rewards/{even.__name__}/mean"] == pytest.approx(sum(rewards) / 4)
        assert line["reward"] == pytest.approx(sum(rewards) / 2)  # of both functions
        assert line[f"{even.__name__}/unscored"] == 0.0
