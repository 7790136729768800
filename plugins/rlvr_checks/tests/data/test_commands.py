"""The generated commands: splits, what a problem says, demonstrations, and the gate."""

from collections import Counter

from rlvr_checks.structured.commands import (
    Commands,
    CommandsHeldout,
    CommandsHeldoutGreedy,
)
from rlvr_checks.structured.json_verifier import JsonVerifier
from rlvr_core.api import Completion, DatasetLoader, Demonstrator, EvalTask


def problems(**options):
    return list(Commands(Commands.Config(**options)).load())


def asked(problem):
    """What a problem asks for, whatever the value: its wording and its room."""
    command, room, _ = problem.id.removeprefix("command_").split("_")
    return command, room


def verdict(problem, text):
    return JsonVerifier(JsonVerifier.Config()).verify(problem, Completion.from_text(text))


def test_held_out_commands_are_never_trained_on_but_their_parts_are():
    train, heldout = problems(), problems(split="heldout")
    ids = [problem.id for problem in train + heldout]
    assert len(set(ids)) == len(ids) == 16 * 10 * 90
    seen, unseen = set(map(asked, train)), set(map(asked, heldout))
    assert not seen & unseen
    assert 20 <= len(unseen) <= 45  # a fifth of 160, by chance
    for parts in (0, 1):
        assert {one[parts] for one in unseen} <= {one[parts] for one in seen}


def test_a_command_and_its_answer():
    (one,) = (p for p in problems() + problems(split="heldout") if p.id == "command_fan1_attic_18")
    assert one.prompt == "Cool the attic down to 18. JSON:\n"
    assert one.spec["answer"] == {"device": "fan", "room": "attic", "value": 18}
    assert verdict(one, '{"device": "fan", "room": "attic", "value": 18}').passed
    for wrong in (
        '{"device": "heater", "room": "attic", "value": 18}',
        '{"device": "fan", "room": "attic", "value": "18"}',
        '{"device": "fan", "room": "attic"}',
        '{"device": "fan", "where": "attic", "value": 18}',
        '{"device": "fan", "room": "attic", "value": 18',
        "fan attic 18",
    ):
        assert verdict(one, wrong).score == 0.0


def test_no_command_names_its_device():
    for problem in problems(n=2000):
        assert problem.spec["answer"]["device"] not in problem.prompt.lower()


def test_order_depends_on_the_seed_only():
    assert problems(n=50) == problems(n=50) != problems(n=50, seed=1)


def test_demonstrations_are_of_training_problems_and_mostly_careless_in_the_second_half():
    loader = Commands(Commands.Config())
    assert isinstance(loader, DatasetLoader)
    assert isinstance(loader, Demonstrator)
    shown = list(loader.demonstrations(4000, seed=5))
    assert shown == list(loader.demonstrations(4000, seed=5))
    assert shown != list(loader.demonstrations(4000, seed=6))
    unseen = set(map(asked, problems(split="heldout")))
    assert not unseen & {asked(problem) for problem, _ in shown}
    assert all(verdict(problem, text).passed for problem, text in shown[:2000])
    details = Counter(verdict(problem, text).detail for problem, text in shown[2000:])
    assert 0.1 < details[""] / 2000 < 0.2
    for fault in ("not JSON", "cut off", "is not of type 'integer'", "'where' was unexpected"):
        assert any(fault in detail for detail in details), fault


def test_tasks_differ_in_temperature_only():
    tasks = [kind(kind.Config(n_problems=64)) for kind in (CommandsHeldout, CommandsHeldoutGreedy)]
    sampled, greedy = tasks
    assert all(isinstance(task, EvalTask) for task in tasks)
    assert sampled.problems() == greedy.problems()
    assert len(sampled.problems()) == 64
    assert (sampled.sampling.temperature, greedy.sampling.temperature) == (1.0, 0.0)
