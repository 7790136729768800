"""Mistakes planted in a copy of the quick start, one a time, and the check that names each."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[4]
QUICKSTART = ROOT / "examples" / "quickstart.yaml"

Plant = Callable[[dict[str, Any], Path], None]
MISTAKES: dict[str, tuple[Plant, str]] = {}
"""Function and id of the check, by name."""


def mistake(check: str) -> Callable[[Plant], Plant]:
    """Register the function as a mistake that this check must name."""

    def register(plant: Plant) -> Plant:
        MISTAKES[plant.__name__] = plant, check
        return plant

    return register


def rows(n: int = 400, seed: int = 0) -> list[dict[str, Any]]:
    """Return problems as the quick start's data set asks them."""
    rng, made = random.Random(seed), {}
    while len(made) < n:
        a, b = rng.randint(10, 99), rng.randint(10, 99)
        made[f"{a}+{b}"] = {
            "id": f"sum_{a}_{b}",
            "question": f"What is {a}+{b}?",
            "answer": str(a + b),
            "first": str(a),
        }
    return list(made.values())


def use_rows(
    config: dict[str, Any], folder: Path, data: list[dict[str, Any]], **options: Any
) -> None:
    """Train on these rows."""
    text = "".join(json.dumps(row) + "\n" for row in data)
    (folder / "data.jsonl").write_text(text, encoding="utf-8")
    given = {
        "path": str(folder / "data.jsonl"),
        "prompt": "question",
        "id": "id",
        "verifier": "math/boxed",
    }
    config["data"]["sources"] = [{"use": "core/jsonl", "with": given | options}]
    config["eval"]["tasks"] = []


def use_function(config: dict[str, Any], folder: Path, body: str) -> None:
    """Judge by a function of the user's own."""
    head = "import random, time\n\nCALLS = [0]\n\n\ndef judge(text, answer):\n"
    (folder / "reward.py").write_text(head + body, encoding="utf-8")
    use_rows(config, folder, rows())
    config["rewards"] = [f"{folder}/reward.py:judge"]


def own_model(config: dict[str, Any], folder: Path, name: str = "tiny-base") -> Path:
    """Train a copy of the quick start's model, whose files may be changed."""
    from rlvr_core.plugins.host import load_host
    from rlvr_core.tiny.tiny import resolve_tiny

    path = folder / name
    shutil.copytree(resolve_tiny("tiny:math/arithmetic", load_host()), path)
    config["model"]["path"] = str(path)
    return path


def edit(path: Path, **changes: Any) -> None:
    """Change values of a JSON file; None removes one."""
    data = json.loads(path.read_text())
    for key, value in changes.items():
        data[key] = value
        if value is None:
            del data[key]
    path.write_text(json.dumps(data))


@mistake("data/answers")
def every_answer_is_the_same(config, folder):
    use_rows(config, folder, [{**row, "answer": "7"} for row in rows()])


@mistake("data/leaks")
def answer_in_prompt_with_label(config, folder):
    data = [{**r, "question": f"{r['question']} (Answer: {r['answer']})"} for r in rows()]
    use_rows(config, folder, data)


@mistake("data/copies")
def few_problems_under_many_ids(config, folder):
    data = [{**row, "id": f"{row['id']}_{i}"} for row in rows(5) for i in range(80)]
    use_rows(config, folder, data)


@mistake("data/contradictions")
def one_prompt_with_two_answers(config, folder):
    data = rows(300)
    twins = [{**r, "id": r["id"] + "b", "answer": str(int(r["answer"]) + 3)} for r in data[:40]]
    use_rows(config, folder, data + twins)


@mistake("data/held_out")
def eval_data_are_training_data(config, folder):
    use_rows(config, folder, rows())
    given = config["data"]["sources"][0]
    task = {"use": "core/dataset", "with": {"data": given}}
    config["eval"]["tasks"] = [task]


@mistake("run/start")
def every_prompt_is_too_long(config, folder):
    config["data"]["max_prompt_tokens"] = 8


@mistake("data/overlong")
def most_prompts_are_left_out(config, folder):
    data = rows()
    for row in data[len(data) // 3 :]:
        row["question"] = "Dear reader, " * 20 + row["question"]
    use_rows(config, folder, data)
    config["data"] |= {"max_prompt_tokens": 40, "max_overlong_share": 0.9}


@mistake("data/amount")
def a_step_has_more_prompts_than_there_are(config, folder):
    use_rows(config, folder, rows(20))


@mistake("data/mini_batches")
def batches_do_not_divide(config, folder):
    config["train"]["mini_batches"] = 5


@mistake("prompt/bos")
def bos_twice(config, folder):
    path = own_model(config, folder)
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    piece = {"SpecialToken": {"id": "<pad>", "type_id": 0}}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [piece, piece, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [piece, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<pad>": {"id": "<pad>", "ids": [1], "tokens": ["<pad>"]}},
    }
    (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    edit(path / "tokenizer_config.json", bos_token="<pad>")


@mistake("prompt/special")
def special_tokens_in_the_prompt(config, folder):
    config["data"]["prompt"] = {"system": "<|endoftext|>Solve it."}


@mistake("tokenizer/special")
def eos_of_the_tokenizer_is_wrong(config, folder):
    path = own_model(config, folder)
    edit(path / "tokenizer_config.json", eos_token="Z")


@mistake("prompt/context")
def context_is_too_short(config, folder):
    path = own_model(config, folder)
    edit(path / "config.json", max_position_embeddings=32)


@mistake("model/lora")
def lora_targets_match_nothing(config, folder):
    config["model"]["lora"] = {"rank": 4, "target_modules": ["query_key_value"]}


@mistake("model/attention")
def attention_is_not_installed(config, folder):
    config["model"]["attention"] = "flash_attention_2"


@mistake("disk/files")
def disk_is_too_small(config, folder):
    config["train"]["steps"] = 1_000_000
    config["checkpoint"] = {"every": 1, "keep": 1_000_000}


@mistake("batch/pass_rate")
def verifier_wants_the_bare_answer(config, folder):
    use_rows(config, folder, rows(), verifier="core/exact")


@mistake("batch/rewards")
def verifier_raises(config, folder):
    body = "    if len(text) % 2:\n        raise ValueError('odd')\n"
    use_function(config, folder, body + "    return float(f'{{{answer}}}' in text)\n")


@mistake("batch/signs")
def reward_has_the_wrong_sign(config, folder):
    config["rewards"] = [{"use": "auto", "weight": -1.0}]


@mistake("batch/ending")
def too_few_tokens(config, folder):
    config["sampling"]["max_tokens"] = 4


@mistake("batch/repeats")
def temperature_nearly_zero(config, folder):
    config["sampling"]["temperature"] = 0.01


@mistake("weights/parity")
def nucleus_sampling(config, folder):
    config["sampling"]["top_p"] = 0.5


@mistake("weights/lr")
def learning_rate_too_high(config, folder):
    config["train"]["lr"] = 0.1


@mistake("weights/lr")
def learning_rate_too_low(config, folder):
    config["train"]["lr"] = 1e-12


JUDGE = """
CALLS = [0]


class Judge:
    def __init__(self, config):
        pass

    def gold(self, problem):
        return problem.spec["answer"]

    def verify(self, problem, completion):
        from rlvr_core.api import Verdict

        CALLS[0] += 1
        return Verdict(float(RULE))
"""


def use_class(config: dict[str, Any], folder: Path, rule: str) -> None:
    """Judge by a class of the user's own, which knows right answers."""
    (folder / "judge.py").write_text(JUDGE.replace("RULE", rule), encoding="utf-8")
    use_rows(config, folder, rows())
    config["rewards"] = [f"{folder}/judge.py:Judge"]


@mistake("verifier/repeatable")
def verifier_keeps_state(config, folder):
    use_class(config, folder, "CALLS[0] % 3 == 0")


@mistake("verifier/wrong")
def verifier_reads_the_first_digit(config, folder):
    use_class(config, folder, 'problem.spec["answer"][:1] in completion.text')


def written(names: list[str], folder: Path) -> Path:
    """Write a copy of the quick start with these mistakes; return its path."""
    config = yaml.safe_load(QUICKSTART.read_text())
    for name in names:
        MISTAKES[name][0](config, folder)
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
    return path
