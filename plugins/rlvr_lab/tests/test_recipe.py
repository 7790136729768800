"""What one tool writes, the next one reads: pass@k, a warm start, RL, evaluation, as documented."""

import json
import shutil
from pathlib import Path

import yaml

from rlvr_core.data.jsonl import JsonLines

SOURCE = {"prompt": "question", "id": "id", "verifier": "toy/early"}
DATA = {"use": "core/jsonl", "with": {"path": "data.jsonl", **SOURCE}}
CHATS = [
    [{"role": "system", "content": "Be short."}, {"role": "user", "content": f"Speak {i}."}]
    for i in range(8)
]


def lines(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def config(model, **sections):
    """The config of a run on the problems of data.jsonl."""
    whole = {
        "run": {"name": "lab"},
        "model": {"path": str(model)},
        "data": {"sources": [DATA]},
        "sampling": {"n": 4, "max_tokens": 6},
        "engine": "transformers",
        "train": {"steps": 2, "prompts_per_step": 4, "lr": 1e-3, "warmup_steps": 0},
        **sections,
    }
    return yaml.safe_dump(whole)


def passk(lab, model, questions):
    """Pass@k on problems with these prompts; writes data.jsonl, sft.jsonl and order.txt."""
    rows = [{"id": f"q{i}", "question": q, "hopeless": False} for i, q in enumerate(questions)]
    Path("data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return lab.rlvr(
        *("passk", model, "--task", "core/dataset", "--with", f"data={yaml.safe_dump(DATA)}"),
        *("--max-tokens", 6, "--allow-truncation", "--n", 8, "--k", "1,8", "--out", "passk"),
        *("--sft", "sft.jsonl", "--curriculum", "order.txt"),
        *("--min", 0.01, "--max", 0.99, "--set", "prompt.chat_template=never"),
    )


def keep_all_finished(lab):
    """Mark every stored answer as finished: a random model hardly ever stops by itself."""
    path = lab.folder / "passk" / "core_dataset" / "results.jsonl"
    rows = [row | {"truncated": False} for row in lines(path)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_the_recipe(lab, model_dir):
    passk(lab, model_dir, [f"Speak {i}." for i in range(8)])
    keep_all_finished(lab)
    passk(lab, model_dir, [f"Speak {i}." for i in range(8)])  # nothing is sampled again
    written, order = lines("sft.jsonl"), Path("order.txt").read_text().split()
    assert len(written) > 8  # several answers to a problem
    assert order

    data = {"path": "sft.jsonl", "prompt": "prompt", "id": "id", "verifier": "exact"}
    answers = {"use": "core/jsonl", "with": data}
    loss = {"use": "sft", "with": {"target": "completion", "rows_per_step": 16}, "data": answers}
    Path("warm.yaml").write_text(config(model_dir, loss=loss, run={"name": "warm"}))
    lab.rlvr("run", "warm.yaml", "--display", "none")
    (warm,) = Path("runs").iterdir()
    steps = lines(warm / "metrics.jsonl")
    assert [row["sft/rows"] for row in steps] == [16, 16]
    assert steps[1]["sft/nll"] < steps[0]["sft/nll"]
    record = json.loads((warm / "run.json").read_text())["data"]
    (imitated,) = (value for name, value in record.items() if "answers" in name)
    assert imitated["problems"] == len(written)

    checkpoint = warm / "checkpoints" / "latest"
    for name, sampler in (
        ("ordered", {"use": "curriculum", "with": {"order": "order.txt"}}),
        (
            "by-rate",
            {"use": "difficulty", "with": {"pass_rates": "passk/core_dataset/difficulty.jsonl"}},
        ),
    ):
        Path("rl.yaml").write_text(config("x", loss="grpo", sampler=sampler, run={"name": name}))
        lab.rlvr("run", "rl.yaml", "--set", f"model.path={checkpoint}", "--display", "none")
    (ordered,) = Path("runs").glob("ordered-*")
    drawn = [row["problem_id"] for row in lines(ordered / "traces" / "rollouts.jsonl")]
    assert drawn[: len(order)][:4] == order[:4]

    task = ("--task", "letters", "--allow-truncation")
    lab.rlvr("eval", model_dir, *task, "--out", "before")
    lab.rlvr("eval", ordered, *task, "--out", "after")
    compared = lab.json("compare", "before", "after")
    assert compared["tasks"][0]["n"] == 24
    same = ("core/dataset", "--with", f"data={yaml.safe_dump(DATA)}", "--trained-on", "sft.jsonl")
    known = lab.rlvr("eval", model_dir, "--task", *same, "--out", "known", check=2)
    assert "sft.jsonl" in known.stderr  # what was imitated is recognised as trained on


def test_every_row_asks_what_its_problem_asked(lab, model_dir):
    texts = [f"Speak {i}: {{x}}\n" for i in range(4)]
    for questions in (texts, CHATS):
        shutil.rmtree("passk", ignore_errors=True)
        passk(lab, model_dir, questions)
        keep_all_finished(lab)
        passk(lab, model_dir, questions)
        options = {"path": "sft.jsonl", "prompt": "prompt", "id": "id", "verifier": "exact"}
        source = {"path": "data.jsonl", **SOURCE}
        asked = {one.id: one for one in JsonLines(JsonLines.Config(**source)).load()}
        found = list(JsonLines(JsonLines.Config(**options)).load())
        assert len(found) > len(questions)
        assert len({one.id for one in found}) == len(found)
        for one in found:
            assert one.prompt == asked[one.spec["problem_id"]].prompt
